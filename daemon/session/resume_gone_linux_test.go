package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
)

// A client that is gone resumes nothing. Otherwise a RESUME that waits on a closed connection would
// take the lease from the client's new connection and release it, and that connection would get no
// LOST.
func TestGoneClientResumesNothing(t *testing.T) {
	s := newSuccession(t)
	holder, before, next, look := s.dial(), s.dial(), s.dial(), s.dial()
	holder.Say("LOCK busy", granted5)
	lease := holder.Say("LOCK a", granted5)[0]
	before.sendWaiting(look, "LOCK busy", 1)
	before.Send("RESUME a lease=%s", lease)
	next.Say("RESUME a lease="+lease, granted5)
	before.Conn.Close()
	look.Until("STATUS", `connections=3\b`)
	next.Say("CHECK a", granted5)
	look.Say("TRY a", `ERR HELD .*`)
}

// A gone client resumes nothing, even before the daemon has noticed: it has begun the client's
// requests, and has not read from the connection since.
func TestGoneClientResumesNothingUnnoticed(t *testing.T) {
	s := newSuccession(t)
	holder, session := s.dialUnstored()
	lease := holder.Say("LOCK a", granted5)[0]
	ours, theirs, err := devnodes.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(ours, "@1 RESUME a lease=%s\nLIST\n", lease); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	s.d.Log.SetLevel(hclog.Trace)
	session.listing <- struct{}{} // makes each LIST of this user wait
	go s.server.ServeConn(theirs)
	<-s.opened
	s.log.Await(t, "answer: verb=RESUME")
	<-session.listing
	holder.Until("STATUS", `connections=1\b`)
	holder.Say("CHECK a", granted5)
	s.dial().Say("TRY a", `ERR HELD .*`)
}

// A client that the daemon cuts resumes nothing. Otherwise its RESUME would stop the extensions of
// another client's lease.
func TestCutClientResumesNothing(t *testing.T) {
	s := newSuccession(t)
	s.server.LineTimeout = time.Millisecond
	holder, before, look := s.dial(), s.dial(), s.dial()
	holder.Say("LOCK busy", granted5)
	lease := holder.Say("LOCK a", granted5)[0]
	before.sendWaiting(look, "LOCK busy", 1)
	if _, err := fmt.Fprintf(before.Conn, "RESUME a lease=%s\nPI", lease); err != nil {
		t.Fatal(err)
	}
	before.Want(`ERR CANCELLED lock=busy .*`)
	before.Want(`ERR CANCELLED lock=a .*`)
	before.Want(`ERR SYNTAX : a line was not ended .*`)
	look.Until("STATUS", `connections=2\b`)
	holder.Say("CHECK a", granted5)
}

// Two clients resume a lease while the nodes hang. One of them gets it. The other one gets no OK,
// and no record that the lease ends with its connection.
func TestOneOfTwoResumesWins(t *testing.T) {
	d := startDaemon(t, 3, func(c *config.Config) { c.Quorum.NodeTimeout = 5 * time.Second })
	w, first, second := d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, next := range []*wire{first, second} {
		next.Send("@1 RESUME a lease=%s", lease)
		next.Until("CHECK a", `OK lock=a .*`) // the lease has moved to it
	}
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	first.Want(`@1 ERR NOTHELD lock=a .*`)
	second.Want(`@1 ` + granted5)
	first.Conn.Close()
	second.Until("STATUS", `connections=2\b`)
	second.Say("CHECK a", granted5)
}

// A client that resumes a lease at the moment when the daemon gives it up, because the old
// connection was cut, gets LOST.
func TestResumeDuringLetExpire(t *testing.T) {
	s := newSuccession(t)
	w, next := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, granted5)
	s.d.letExpire(s.d.leaseByID(lease)) // as the end of the old connection would
	next.Want(`LOST lock=a lease=` + lease + ` reason=quorum .*`)
	next.Say("CHECK a", `ERR LOST lock=a reason=quorum .*`)
}

// A lease that is given up at the moment of its RESUME is forgotten after an hour, like other lost
// leases.
func TestLetExpireSetsTheInstantOfLoss(t *testing.T) {
	s := newSuccession(t)
	w, next := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, granted5)
	h := s.d.leaseByID(lease)
	s.d.letExpire(h)
	next.Want(`LOST lock=a lease=` + lease + ` reason=quorum .*`)
	if h.lostAt.Load() == 0 {
		t.Error("the instant of the loss is not set, so the lease is never forgotten")
	}
}

// A lease that another connection has just released is not recorded as held when its own connection
// is cut. Otherwise the next daemon would restore it.
func TestLetExpireIgnoresReleasedLease(t *testing.T) {
	s := newSuccession(t)
	nodes := slices.Clone(s.nodes)
	down := s.nodesMayFail()
	copy(s.nodes[1:], nodes[1:]) // only the first node may fail
	s.end()
	s.start()
	w, look := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	h := s.d.leaseByID(lease)
	down.Store(true) // it gets no release, so the record of the release stays
	look.Say("UNLOCK lease="+lease, `OK lock=a`)
	s.d.letExpire(h) // as the end of its connection would, if that was cut at the same time
	w.Say("PING", `OK`)
	s.end()
	s.found = func(p *state.Recovered) {
		if l := recordOf(t, p, "a"); l == nil || l.Life.State != locktable.Releasing {
			t.Errorf("recorded is %+v, want a release", l)
		}
	}
	s.start()
}
