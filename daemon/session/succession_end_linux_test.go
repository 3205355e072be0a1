package session

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If the daemon stops before it answers an UNLOCK, the next one answers it. The record of the
// release stays until the UNLOCK is answered, even if all nodes confirm the release meanwhile.
func TestUnlockIsAnsweredAfterARestart(t *testing.T) {
	s := newSuccession(t)
	var slow atomic.Bool
	for i := range s.nodes {
		took := 150 * time.Millisecond
		if i > 2 { // these nodes are not in the first quorum
			took += 50 * time.Millisecond
		}
		s.nodes[i] = slowNode(s.nodes[i], &slow, took)
	}
	s.end()
	s.start()
	w := s.dial()
	other, _ := s.dialUnstored()
	w.Say("LOCK a ttl=20s", granted5)
	other.Say("LOCK b ttl=20s", granted5)
	slow.Store(true)
	w.Send("UNLOCK a")
	daemontest.Eventually(t, "a is released", func() bool { return s.d.Held() == 1 })
	other.Send("UNLOCK b") // the daemon's stop waits for it
	daemontest.Eventually(t, "b is released", func() bool { return s.d.Held() == 0 })
	s.end()
	slow.Store(false)
	s.start(w)
	w.Want(`BACK .*`)
	w.Want(`OK lock=a pending=1 : .*`)
}

// When the daemon stops, it answers a waiting LOCK, and releases what the attempt took before it
// exits. The next daemon knows nothing of the LOCK.
func TestShutdownReleasesUnfinishedAttempt(t *testing.T) {
	s := newSuccession(t)
	var slow atomic.Bool
	var executed atomic.Int32
	nodes := slices.Clone(s.nodes)
	for i := range s.nodes {
		s.nodes[i] = slowNode(countingNode(s.nodes[i], "redlock:a", &executed), &slow, 100*time.Millisecond)
	}
	down := s.nodesMayFail()
	s.end()
	s.start()
	w, _ := s.dialUnstored()
	slow.Store(true)
	w.Send("LOCK a ttl=20s")
	daemontest.Eventually(t, "the LOCK asks the nodes", func() bool { return len(s.d.Waiting()) == 1 })
	daemontest.Eventually(t, "the nodes have granted it, but not answered", func() bool { return executed.Load() == 5 })
	s.d.Freeze(s.server)
	down.Store(true) // from here it can send nothing
	w.Want(`ERR SHUTDOWN lock=a .*`)
	s.end()
	s.nodes = nodes
	s.start()
	next, _ := s.dialUnstored()
	next.Say("LOCK a wait=2s", granted5)
}

// slowNode returns a node that answers each group after took while slow is set.
func slowNode(node redlock.Node, slow *atomic.Bool, took time.Duration) redlock.Node {
	dial := node.Dial
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		conn, err := dial(ctx)
		return redlocktest.WithDo(conn, slowConn{conn, slow, took}.Do), err
	}
	return node
}

type slowConn struct {
	redlock.Conn
	slow *atomic.Bool
	took time.Duration
}

func (c slowConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	err := c.Conn.Do(ctx, group, replies)
	if c.slow.Load() {
		time.Sleep(c.took) // real time, as the daemon's timeouts are
	}
	return err
}

// countingNode returns a node that counts the groups about a key that it has executed.
func countingNode(node redlock.Node, key string, executed *atomic.Int32) redlock.Node {
	dial := node.Dial
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		conn, err := dial(ctx)
		return redlocktest.WithDo(conn, countingConn{conn, key, executed}.Do), err
	}
	return node
}

type countingConn struct {
	redlock.Conn
	key      string
	executed *atomic.Int32
}

func (c countingConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	isAbout := slices.ContainsFunc(group, func(command redlock.Command) bool { return slices.Contains(command, c.key) })
	err := c.Conn.Do(ctx, group, replies)
	if isAbout {
		c.executed.Add(1)
	}
	return err
}
