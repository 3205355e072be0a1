package redlocktest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Cluster is a group of independent redis-servers, named a, b, c and so on.
type Cluster struct {
	Servers []*Server
}

// StartRedis starts n redis-servers for one test, and waits until all of them answer. At the end of
// the test it kills them, and prints their logs if the test failed. The test fails if redis-server
// is not installed.
func StartRedis(tb testing.TB, n int, options ...Option) *Cluster {
	tb.Helper()
	dir, err := os.MkdirTemp("", "rl") // the path of tb.TempDir is too long for a unix socket
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

// TurnOfCron makes it the turn of a waiter on another host (pid 4121, cron on web3) to take a lock
// that nobody holds, on all servers, for a minute.
func (c *Cluster) TurnOfCron(tb testing.TB, key string) {
	tb.Helper()
	const entry = "web3 - 60000 Jc0bZrT6VfYh3oXw9u2LQg host=web3 pid=4121 uid=33 user=cron since=1795247588294"
	until := time.Now().Add(time.Minute)
	for _, s := range c.Servers {
		for _, command := range [][]string{
			{"HSET", NodeKey, "queues", strconv.FormatInt(until.UnixMilli(), 10)}, {"SET", "redlockd:host:web3", "1", "PX", minute},
			{"ZADD", key + "\x00q", strconv.FormatInt(time.Now().UnixMicro(), 10), entry}, {"SET", key + "\x00t", strconv.FormatInt(until.UnixMicro(), 10) + " " + entry, "PX", minute},
		} {
			if reply, err := s.Do(command...); err != nil || reply.Err != nil {
				tb.Fatal(err, reply.Err)
			}
		}
	}
}

// Admit ends the quarantine of all servers, so that a test can use them at once. It admits them
// under the names that Nodes returns, with the default prefix.
func (c *Cluster) Admit(tb testing.TB) {
	tb.Helper()
	if err := Admit(tb.Context(), c.Nodes(), redlock.DefaultPrefix); err != nil {
		tb.Fatal(err)
	}
}

// Admit ends the quarantine of all nodes, for daemons with this prefix. All nodes must be up.
func Admit(ctx context.Context, nodes []redlock.Node, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	changed := make(chan struct{}, 1)
	q, err := redlock.New(redlock.Options{Nodes: nodes, Prefix: prefix, NoQuarantine: true, MaxTTL: redlock.MinTTL, NodeTimeout: 10 * time.Second, Observe: func(redlock.NodeStatus) {
		select {
		case changed <- struct{}{}:
		default: // a signal is already waiting
		}
	}})
	if err != nil {
		return err
	}
	defer q.Close()
	for q.Status().Ready < len(nodes) {
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("not all nodes were admitted within %v: %+v", startTimeout, q.Status().Nodes)
		}
	}
	return nil
}

// Nodes returns the servers as nodes, in order.
func (c *Cluster) Nodes() []redlock.Node {
	nodes := make([]redlock.Node, len(c.Servers))
	for i, s := range c.Servers {
		nodes[i] = s.Node()
	}
	return nodes
}
