package redlocktest

import (
	"os"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// Cluster is some independent redis-servers, named a, b, c and so on.
type Cluster struct {
	Servers []*Server
}

// StartRedis starts n redis-servers for one test and returns when all of them
// answer. They are killed when the test is over; their logs are printed where
// it failed. A machine without redis-server fails the test.
func StartRedis(tb testing.TB, n int, options ...Option) *Cluster {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rl") // tb.TempDir is too long for a unix socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	servers, err := launchAll(dir, n, options)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{Servers: servers}
	tb.Cleanup(func() { c.end(tb) })
	return c
}

func (c *Cluster) end(tb testing.TB) {
	killAll(c.Servers)
	if !tb.Failed() {
		return
	}
	for _, s := range c.Servers {
		tb.Logf("redis-server %s at %s printed:\n%s", s.name, s.Addr(), tail(s.Log(), 30))
	}
}

// Nodes returns the servers as nodes, in order.
func (c *Cluster) Nodes() []redlock.Node {
	nodes := make([]redlock.Node, len(c.Servers))
	for i, s := range c.Servers {
		nodes[i] = s.Node()
	}
	return nodes
}
