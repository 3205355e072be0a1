//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A daemon without a free descriptor serves the connected clients. It logs the lack, but not
// endlessly. When connections end, it accepts again.
func TestNoDescriptorLeft(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	h := newHost(t, cluster)
	d := start(t, h.dir, "sh", "-c", `ulimit -n 60 && exec "$0" -config "$1"`, filepath.Join(binaries, "redlockd"), h.config)
	awaitLog(d, "serving: ")
	first := h.guest(t)
	first.ask("PING", "OK")
	var many []*guest
	for range 100 {
		many = append(many, h.guest(t))
	}
	awaitLog(d, "no connection can be accepted for now")
	for range 20 {
		first.ask("LOCK job wait=0", "OK lock=job")
		first.ask("UNLOCK job", "OK lock=job")
	}
	for _, g := range many {
		g.conn.Close()
	}
	waitFor(t, "a connection is accepted", func() bool { // until then the answer is LIMIT
		after := h.guest(t)
		after.write("LOCK job wait=0\n")
		answer, _ := after.line()
		return strings.HasPrefix(answer, "OK lock=job")
	})
	awaitLog(d, "connections are accepted again")
	if n := strings.Count(d.stderr.text(), "no connection can be accepted"); n != 1 {
		t.Errorf("it was logged %d times, want once", n)
	}
}

// sizeOf returns a size of the daemon's memory from /proc, in bytes.
func (h *host) sizeOf(d *process, what string) int {
	h.t.Helper()
	status := readFile(h.t, fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	_, rest, _ := strings.Cut(status, what)
	var kilobytes int
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		h.t.Fatal(err)
	}
	return kilobytes << 10
}
