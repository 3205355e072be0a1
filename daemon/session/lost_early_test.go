package session

import (
	"io"
	"net"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// slowSession is a session in which a test acts on a lease before its LOCK is answered.
type slowSession struct {
	*session
	granted func(a *lockRequest)
}

func (s *slowSession) Begin(call *server.Call) server.Work {
	work := s.session.Begin(call)
	if a, ok := work.(*lockRequest); ok {
		return &slowLock{a, s.granted}
	}
	return work
}

// slowLock does the same as lockRequest.Run, step by step.
type slowLock struct {
	*lockRequest
	granted func(a *lockRequest)
}

func (s *slowLock) Run() {
	err := s.acquire(s.call.Context())
	s.settle(err)
	s.granted(s.lockRequest)
	s.answer()
}

// dialSlow connects to a daemon that calls granted before it answers a LOCK.
func dialSlow(t *testing.T, granted func(a *lockRequest)) *wire {
	t.Helper()
	d := readyHost(t)
	srv := d.NewServer()
	srv.Open = func(conn *server.Conn) (server.Session, error) {
		s, err := d.open(conn)
		return &slowSession{s.(*session), granted}, err
	}
	w, _ := dialWithin(t, srv)
	return w
}

// readyHost returns a Host with embedded nodes that are ready, whose fields the test can read.
func readyHost(t *testing.T) *Host {
	t.Helper()
	d, closeNodes := embeddedHost(t, io.Discard)
	t.Cleanup(closeNodes)
	t.Cleanup(d.Nodes.Close)
	d.Nodes.Settle(t.Context())
	return d
}

// dialWithin connects to a server of this process. hangUp returns when the session is closed.
func dialWithin(t *testing.T, srv *server.Server) (w *wire, hangUp func()) {
	t.Helper()
	ours, theirs, err := devnodes.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.ServeConn(theirs)
	}()
	hangUp = func() {
		ours.Close()
		<-served
	}
	t.Cleanup(hangUp)
	return &wire{daemontest.NewWire(t, ours.(*net.UnixConn))}, hangUp
}

// A LOCK whose lease is lost before the answer is refused. After an OK, the client would work until
// LOST arrives. CHECK gives the same answer.
func TestLostBeforeTheAnswer(t *testing.T) {
	w := dialSlow(t, func(a *lockRequest) { a.lease.Lose(redlock.LostForced) })
	w.Say("LOCK a", `ERR LOST lock=a reason=forced : .*`)
	w.Say("CHECK a", `ERR LOST lock=a reason=forced : .*`)
}

// Leases that were lost before the answer are remembered, but only as many as other losses. If
// nodes are slow and leases short, every lease is lost like this, and nothing else bounds them.
func TestLostBeforeTheAnswerIsBounded(t *testing.T) {
	w := dialSlow(t, func(a *lockRequest) {
		a.session.host.setLimits(config.Limits{LeasesPerUser: 2})
		a.lease.Lose(redlock.LostForced)
	})
	for _, name := range []string{"a1", "a2", "a3"} {
		w.Say("LOCK "+name, `ERR LOST lock=`+name+` reason=forced : .*`)
	}
	w.Until("CHECK a1", `ERR NOTHELD`)
	w.Say("CHECK a2", `ERR LOST .*`)
	w.Say("CHECK a3", `ERR LOST .*`)
}

// If a lease is lost while its LOCK is being answered, LOST follows the OK immediately. Before the
// OK, the client would not know the lease.
func TestLostWhileAnswered(t *testing.T) {
	w := dialSlow(t, func(a *lockRequest) {
		d := a.session.host
		d.mu.Lock()
		defer d.mu.Unlock()
		if change(a.heldLease, locktable.WasLost).Has(locktable.SendLost) { // the first step of leaseLost
			t.Error("LOST would be sent before the OK")
		}
	})
	lease := w.Say("LOCK a", granted5)[0]
	w.Want(`LOST lock=a lease=` + lease + ` reason=.*`)
}

// LOST also follows the OK of a LOCK that counts on the lease, or repeats the first LOCK, even if
// the first LOCK is answered only afterwards.
func TestLostFollowsAnotherAnswer(t *testing.T) {
	for _, again := range []string{"reentrant=yes", "reentrant=yes id=x"} {
		lose := make(chan struct{})
		w := dialSlow(t, func(a *lockRequest) {
			<-lose
			a.lease.Lose(redlock.LostForced)
		})
		w.Send("@1 LOCK a reentrant=yes id=x")
		w.Send("@2 LOCK a " + again)
		lease := w.Want(`@2 ` + granted5 + `.*`)[0]
		close(lose)
		answers(w, "PING", `OK`, `LOST lock=a lease=`+lease+` reason=forced.*`, `@1 ERR LOST .*`)
	}
}
