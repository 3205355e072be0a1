//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// host is a directory with a config, in which a daemon runs, and runs again.
type host struct {
	t      *testing.T
	dir    string
	socket string
	config string
}

// newHost writes a config for the cluster's nodes. Unix sockets want short paths.
func newHost(t *testing.T, cluster *redlocktest.Cluster) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &host{t: t, dir: dir, socket: filepath.Join(dir, "s"), config: filepath.Join(dir, "redlockd.hcl")}
	h.configure(cluster)
	return h
}

func (h *host) configure(cluster *redlocktest.Cluster) {
	h.t.Helper()
	var nodes strings.Builder
	for _, server := range cluster.Servers {
		fmt.Fprintf(&nodes, "  node %q { address = %q }\n", server.Name(), server.Addr())
	}
	text := fmt.Sprintf("quorum {\n  node_timeout = \"500ms\"\n%s}\nsocket { path = %q }\n", &nodes, h.socket)
	if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// launch starts the daemon, without a look at how that goes.
func (h *host) launch() *process {
	h.t.Helper()
	return start(h.t, h.dir, filepath.Join(binaries, "redlockd"), "-config", h.config)
}

// serve starts the daemon and returns when its socket can be connected to.
func (h *host) serve() *process {
	h.t.Helper()
	d := h.launch()
	awaitLog(d, "serving: ")
	return d
}

// awaitLog waits for a line of the log.
func awaitLog(d *process, word string) string {
	d.t.Helper()
	for {
		line, more := d.next(d.stderr)
		if !more {
			d.t.Fatalf("the daemon ended with %d, %q was expected in its log:\n%s", d.wait(), word, d.stderr.text())
		}
		if strings.Contains(line, word) {
			return line
		}
	}
}

// five is a cluster of five redis-servers with a daemon in front of it.
func five(t *testing.T) (*redlocktest.Cluster, *host, *process) {
	t.Helper()
	needNC(t)
	cluster := redlocktest.StartRedis(t, 5)
	h := newHost(t, cluster)
	return cluster, h, h.serve()
}

// dev starts redlockd -dev, and returns when it has said what to type.
func dev(t *testing.T) (h *host, d *process, greeting string) {
	t.Helper()
	needNC(t)
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d = start(t, dir, filepath.Join(binaries, "redlockd"), "-dev")
	return &host{t: t, dir: dir, socket: filepath.Join(dir, "redlockd.sock")}, d, d.line()
}

// lockKeys are the locks that a node has.
func lockKeys(t *testing.T, server *redlocktest.Server) []string {
	t.Helper()
	keys, err := server.Keys("redlock:*")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// awaitKeys waits until each node has exactly the locks that are wanted.
func awaitKeys(t *testing.T, servers []*redlocktest.Server, wanted ...string) {
	t.Helper()
	for _, server := range servers {
		waitFor(t, fmt.Sprintf("node %s has the locks %q", server.Name(), wanted), func() bool {
			return fmt.Sprint(lockKeys(t, server)) == fmt.Sprint(wanted)
		})
	}
}
