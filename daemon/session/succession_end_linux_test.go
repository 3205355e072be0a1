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

// An UNLOCK that is not answered any more, as the daemon stops, is answered by the next one:
// what it has given back is noted as long as it is, also where all nodes hear of it meanwhile.
func TestUnlockIsAnsweredAfterARestart(t *testing.T) {
	s := newSuccession(t)
	var slow atomic.Bool
	for i := range s.nodes {
		took := 150 * time.Millisecond
		if i > 2 { // not of the first quorum
			took += 50 * time.Millisecond
		}
		s.nodes[i] = tardy(s.nodes[i], &slow, took)
	}
	s.end()
	s.start()
	w := s.dial()
	other, _ := s.dialUnkept()
	w.Say("LOCK a ttl=20s", granted5)
	other.Say("LOCK b ttl=20s", granted5)
	slow.Store(true)
	w.Send("UNLOCK a")
	daemontest.Eventually(t, "it is given back", func() bool { return s.d.Leases.Held() == 1 })
	other.Send("UNLOCK b") // which the end waits for
	daemontest.Eventually(t, "so is the other", func() bool { return s.d.Leases.Held() == 0 })
	s.end()
	slow.Store(false)
	s.start(w)
	w.Want(`BACK .*`)
	w.Want(`OK lock=a pending=1 : .*`)
}

// What a LOCK has taken that is given up as the daemon stops is given back before that ends:
// it was answered, and the next daemon knows nothing of it.
func TestGivenUpAtTheEndIsGivenBack(t *testing.T) {
	s := newSuccession(t)
	var slow atomic.Bool
	var had atomic.Int32
	nodes := slices.Clone(s.nodes)
	for i := range s.nodes {
		s.nodes[i] = tardy(telling(s.nodes[i], "redlock:a", &had), &slow, 100*time.Millisecond)
	}
	ended := s.nodesMayFail()
	s.end()
	s.start()
	w, _ := s.dialUnkept()
	slow.Store(true)
	w.Send("LOCK a ttl=20s")
	daemontest.Eventually(t, "it asks the nodes", func() bool { return len(s.d.Queue.Waiting()) == 1 })
	daemontest.Eventually(t, "they have it, but have not answered", func() bool { return had.Load() == 5 })
	s.d.Freeze(s.server)
	ended.Store(true) // nothing that it has not sent by now is sent
	w.Want(`ERR SHUTDOWN lock=a .*`)
	s.end()
	s.nodes = nodes
	s.start()
	next, _ := s.dialUnkept()
	next.Say("LOCK a wait=2s", granted5)
}

// tardy is a node that takes so long to answer each group while slow is set.
func tardy(node redlock.Node, slow *atomic.Bool, took time.Duration) redlock.Node {
	dial := node.Dial
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		conn, err := dial(ctx)
		return redlocktest.WithDo(conn, tardyConn{conn, slow, took}.Do), err
	}
	return node
}

type tardyConn struct {
	redlock.Conn
	slow *atomic.Bool
	took time.Duration
}

func (c tardyConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	err := c.Conn.Do(ctx, group, replies)
	if c.slow.Load() {
		time.Sleep(c.took) // real time, as the daemon's timeouts are
	}
	return err
}

// telling counts the groups about a key that a node has executed.
func telling(node redlock.Node, key string, had *atomic.Int32) redlock.Node {
	dial := node.Dial
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		conn, err := dial(ctx)
		return redlocktest.WithDo(conn, tellingConn{conn, key, had}.Do), err
	}
	return node
}

type tellingConn struct {
	redlock.Conn
	key string
	had *atomic.Int32
}

func (c tellingConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	isAbout := slices.ContainsFunc(group, func(command redlock.Command) bool { return slices.Contains(command, c.key) })
	err := c.Conn.Do(ctx, group, replies)
	if isAbout {
		c.had.Add(1)
	}
	return err
}
