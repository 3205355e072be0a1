//go:build linux

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A daemon that has no descriptor left serves those who are connected, says so in the
// log, but not without end, and accepts again when connections end.
func TestNoDescriptorLeft(t *testing.T) {
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
	awaitLog(d, "no connection can be accepted, until others end")
	for range 20 {
		first.ask("LOCK job wait=0", "OK lock=job")
		first.ask("UNLOCK job", "OK lock=job")
	}
	for _, g := range many {
		g.conn.Close()
	}
	after := h.guest(t)
	after.ask("LOCK job wait=0", "OK lock=job")
	if n := strings.Count(d.stderr.text(), "no connection can be accepted"); n > 10 {
		t.Errorf("it was said %d times", n)
	}
}

// Who asks faster than the config allows is told so, by the name of the limit, and can
// give back what he has nevertheless. Others are not told.
func TestRequestsPerSecond(t *testing.T) {
	const requests, rate = 2000, 100
	a := newArena(t, "limits { requests_per_second = 100 }")
	bad := a.as(t, badUser)
	bad.ask("LOCK bad", "OK lock=bad")
	go bad.write(strings.Repeat("PING\n", requests) + "UNLOCK bad\n")
	refused := 0
	for range requests {
		line, _ := bad.line()
		switch {
		case strings.HasPrefix(line, "ERR LIMIT : a limit of the config is reached: requests_per_second = 100"):
			refused++
		case line != "OK":
			t.Fatalf("got %s", line)
		}
	}
	if refused < requests/2 || refused > requests-rate+1 {
		t.Errorf("%d of %d are refused", refused, requests)
	}
	bad.comes("OK lock=bad")
	a.good.ask("PING", "OK")
}
