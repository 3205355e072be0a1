package session

import (
	"io"
	"net"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// slowed is a session in which something happens to a lease before its LOCK is answered.
type slowed struct {
	*session
	granted func(a *lockRequest)
}

func (s *slowed) Begin(call *server.Call) server.Work {
	work := s.session.Begin(call)
	if a, ok := work.(*lockRequest); ok {
		return &slowAsk{a, s.granted}
	}
	return work
}

// slowAsk is what ask.Run does, step by step.
type slowAsk struct {
	*lockRequest
	granted func(a *lockRequest)
}

func (s *slowAsk) Run() {
	err := s.acquire(s.call.Context())
	s.settle(err)
	s.granted(s.lockRequest)
	s.answer()
}

// dialSlowed is a connection to a daemon that is slow to answer LOCK.
func dialSlowed(t *testing.T, granted func(a *lockRequest)) *wire {
	t.Helper()
	d := settledDaemon(t)
	srv := d.NewServer()
	srv.Open = func(conn *server.Conn) (server.Session, error) {
		s, err := d.open(conn)
		return &slowed{s.(*session), granted}, err
	}
	w, _ := dialWithin(t, srv)
	return w
}

// settledDaemon is one with embedded nodes, into which a test can look.
func settledDaemon(t *testing.T) *Host {
	t.Helper()
	d, closeNodes := embeddedHost(t, io.Discard)
	t.Cleanup(closeNodes)
	t.Cleanup(d.Nodes.Close)
	d.Nodes.Settle(t.Context())
	return d
}

// dialWithin is a connection to a server of this process. hangUp returns when its session
// is closed.
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

// A lease that is lost before its LOCK is answered is refused: an OK would be an order to
// work for as long as its LOST is under way. CHECK tells the same.
func TestLostBeforeTheAnswer(t *testing.T) {
	w := dialSlowed(t, func(a *lockRequest) { a.lease.Lose(redlock.LostForced) })
	w.Say("LOCK a", `ERR LOST lock=a reason=forced : .*`)
	w.Say("CHECK a", `ERR LOST lock=a reason=forced : .*`)
}

// So many leases that were lost before the answer can be asked of as of others: where nodes
// are slow for short leases, all are lost like that, and nothing else bounds them.
func TestLostBeforeTheAnswerIsBounded(t *testing.T) {
	w := dialSlowed(t, func(a *lockRequest) {
		a.session.host.Limits.Set(config.Limits{LeasesPerUser: 2})
		a.lease.Lose(redlock.LostForced)
	})
	for _, name := range []string{"a1", "a2", "a3"} {
		w.Say("LOCK "+name, `ERR LOST lock=`+name+` reason=forced : .*`)
	}
	w.Until("CHECK a1", `ERR NOTHELD`)
	w.Say("CHECK a2", `ERR LOST .*`)
	w.Say("CHECK a3", `ERR LOST .*`)
}

// A lease that is lost while its LOCK is being answered: LOST does not come before the
// OK, when the client could not know of what, but it comes, right behind.
func TestLostWhileAnswered(t *testing.T) {
	w := dialSlowed(t, func(a *lockRequest) {
		if a.onLost(a.session.host.Clock()).has(sendLost) { // as leaseLost does first
			t.Error("the client is to be told of a loss before it knows that it has the lease")
		}
	})
	lease := w.Say("LOCK a", granted5)[0]
	w.Want(`LOST lock=a lease=` + lease + ` reason=.*`)
}

// So it does behind the OK of one that counts on it, or repeats its LOCK, also where the LOCK
// itself is answered only then.
func TestLostBehindAnotherAnswer(t *testing.T) {
	for _, again := range []string{"reentrant=yes", "reentrant=yes id=x"} {
		lose := make(chan struct{})
		w := dialSlowed(t, func(a *lockRequest) {
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
