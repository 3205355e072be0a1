//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// host is a directory with a config, in which daemons run one after the other.
type host struct {
	t      *testing.T
	dir    string
	socket string
	config string
}

// newHost writes a config for the cluster's nodes. On a busy machine as well, they answer within this
// node_timeout. quorum has more lines for its quorum block. The path is short, because it contains a Unix
// socket.
func newHost(t *testing.T, cluster *redlocktest.Cluster, quorum ...string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &host{t: t, dir: dir, socket: filepath.Join(dir, "s"), config: filepath.Join(dir, "redlockd.hcl")}
	h.configure(cluster, quorum)
	return h
}

// configure writes the config. Every user that may enter the directory may use the socket.
func (h *host) configure(cluster *redlocktest.Cluster, quorum []string) {
	h.t.Helper()
	lines := append([]string{`quorum {`, `node_timeout = "2s"`}, quorum...)
	for _, server := range cluster.Servers {
		lines = append(lines, fmt.Sprintf("node %q { address = %q }", server.Name(), server.Addr()))
	}
	lines = append(lines, `}`, `socket {`, fmt.Sprintf("path = %q", h.socket), `mode = "0666"`, `}`, ``)
	writeFile(h.t, h.config, strings.Join(lines, "\n"))
}

// launch starts the daemon and does not wait for it.
func (h *host) launch() *process {
	h.t.Helper()
	return start(h.t, h.dir, filepath.Join(binaries, "redlockd"), "-config", h.config)
}

// serve starts the daemon and returns when its socket accepts connections.
func (h *host) serve() *process {
	h.t.Helper()
	d := h.launch()
	awaitLog(d, "serving: ")
	return d
}

// awaitLog waits for a log line with that word.
func awaitLog(d *process, word string) string {
	d.t.Helper()
	for giveUp := time.After(2 * patience); ; {
		line, more := d.nextBefore(giveUp, d.stderr, fmt.Sprintf("%q in the log", word))
		if !more {
			d.t.Fatalf("the daemon ended with %d, %q was expected in its log:\n%s", d.wait(), word, d.stderr.text())
		}
		if strings.Contains(line, word) {
			return line
		}
	}
}

// five starts a cluster of five redis-servers that may vote at once, with a daemon.
func five(t *testing.T) (*redlocktest.Cluster, *host, *process) {
	t.Helper()
	needNC(t)
	cluster := redlocktest.StartRedis(t, 5)
	cluster.Admit(t)
	h := newHost(t, cluster)
	d := h.serve()
	h.awaitReady()
	return cluster, h, d
}

// awaitReady waits until all of five nodes are ready: at its start a daemon waits for them for a second only.
func (h *host) awaitReady() {
	h.t.Helper()
	n := h.nc()
	waitFor(h.t, "all nodes are ready", func() bool { return spare(n) == 2 })
	n.kill()
}

// dev starts redlockd -dev, and returns when it has printed its greeting.
func dev(t *testing.T) (h *host, d *process, greeting string) {
	t.Helper()
	needNC(t)
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d = start(t, dir, filepath.Join(binaries, "redlockd"), "-dev")
	var said []string
	for len(said) == 0 || !strings.HasPrefix(said[len(said)-1], "or:") {
		said = append(said, d.line())
	}
	said = append(said, d.line()) // blank, like the first line
	h = &host{t: t, dir: dir, socket: filepath.Join(dir, "redlockd.sock")}
	h.awaitReady()
	return h, d, strings.Join(said, "\n")
}
