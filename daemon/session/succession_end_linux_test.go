package session

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If the daemon stops before it answers an UNLOCK, the next one answers it. The record of the
// release stays until the UNLOCK is answered, even if all nodes confirm the release meanwhile.
func TestUnlockIsAnsweredAfterARestart(t *testing.T) {
	s := newSuccessionWith(t, daemontest.Patience/2) // the nodes answer when the test lets them
	a, b := s.holdAnswers("redlock:a"), s.holdAnswers("redlock:b")
	s.end()
	s.start()
	w := s.dial()
	other, _ := s.dialUnstored()
	w.Say("LOCK a ttl=20s", granted5)
	other.Say("LOCK b ttl=20s", granted5)
	a.hold()
	b.hold()
	w.Send("UNLOCK a")
	daemontest.Eventually(t, "a is released", func() bool { return s.d.Held() == 1 })
	other.Send("UNLOCK b") // the daemon's stop waits for it
	daemontest.Eventually(t, "b is released", func() bool { return s.d.Held() == 0 })
	ended := make(chan struct{})
	go func() { // awaited below
		defer close(ended)
		s.end()
	}()
	daemontest.Eventually(t, "a's connection is left to the next daemon", func() bool { return len(s.server.Kept()) == 1 })
	a.release(0, 1, 2) // a quorum
	daemontest.Eventually(t, "a quorum has confirmed the release of a", func() bool { return b.executed.Load() >= 3 })
	a.release(3, 4)
	daemontest.Eventually(t, "all nodes have", func() bool { return b.executed.Load() == 5 })
	b.release(0, 1, 2, 3, 4)
	<-ended
	s.start(w)
	w.Want(`BACK .*`)
	w.Want(`OK lock=a pending=1 : .*`)
}

// When the daemon stops, it answers a waiting LOCK, and releases what the attempt took before it
// exits. The next daemon knows nothing of the LOCK.
func TestShutdownReleasesUnfinishedAttempt(t *testing.T) {
	s := newSuccessionWith(t, daemontest.Patience/2) // the nodes answer when the test lets them
	nodes := slices.Clone(s.nodes)
	answers := s.holdAnswers("redlock:a")
	down := s.nodesMayFail()
	s.end()
	s.start()
	w, _ := s.dialUnstored()
	answers.hold()
	w.Send("LOCK a ttl=20s")
	daemontest.Eventually(t, "the LOCK asks the nodes", func() bool { return len(s.d.Waiting()) == 1 })
	daemontest.Eventually(t, "the nodes have granted it, but not answered", func() bool { return answers.executed.Load() == 5 })
	ended := make(chan struct{})
	go func() { // awaited below
		defer close(ended)
		s.d.Freeze(s.server)
	}()
	w.Want(`ERR SHUTDOWN lock=a .*`)
	answers.release(0, 1, 2, 3, 4)
	<-ended
	down.Store(true) // from here it can send nothing
	s.end()
	s.nodes = nodes
	s.start()
	next, _ := s.dialUnstored()
	next.Say("LOCK a wait=2s", granted5)
}

// heldAnswers are answers of nodes about a key that the test delays.
type heldAnswers struct {
	key      string
	executed atomic.Int32 // groups about the key that nodes have executed since hold

	mu    sync.Mutex
	gates [5]chan struct{} // of each node: closed by release; nil: its answers are not held
}

// holdAnswers makes the nodes of the next daemons hold their answers about a key from hold to release.
// A node answers in order, so later answers wait as well.
func (s *succession) holdAnswers(key string) *heldAnswers {
	a := &heldAnswers{key: key}
	s.t.Cleanup(func() { a.release(0, 1, 2, 3, 4) })
	for i := range s.nodes {
		dial := s.nodes[i].Dial
		s.nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
			conn, err := dial(ctx)
			return redlocktest.WithDo(conn, heldConn{conn, i, a}.Do), err
		}
	}
	return a
}

func (a *heldAnswers) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.gates {
		a.gates[i] = make(chan struct{})
	}
	a.executed.Store(0)
}

// release lets these nodes answer.
func (a *heldAnswers) release(nodes ...int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range nodes {
		if a.gates[i] != nil {
			close(a.gates[i])
			a.gates[i] = nil
		}
	}
}

// wait returns when the answers of a node are not held.
func (a *heldAnswers) wait(node int) {
	a.mu.Lock()
	gate := a.gates[node]
	a.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// heldConn is a connection to a node whose answers are held.
type heldConn struct {
	redlock.Conn
	node    int
	answers *heldAnswers
}

func (c heldConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	isAbout := slices.ContainsFunc(group, func(command redlock.Command) bool { return slices.Contains(command, c.answers.key) })
	err := c.Conn.Do(ctx, group, replies)
	if isAbout {
		c.answers.executed.Add(1)
		c.answers.wait(c.node)
	}
	return err
}
