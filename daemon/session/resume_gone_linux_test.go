package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/state"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
)

// A client that is gone takes nothing over. What waited for its turn on the connection that
// he has closed would take the lease from the one on which he is back, and give it away,
// of which that one is not told.
func TestGoneClientResumesNothing(t *testing.T) {
	s := newSuccession(t)
	holder, before, next, look := s.dial(), s.dial(), s.dial(), s.dial()
	holder.Say("LOCK busy", granted5)
	lease := holder.Say("LOCK a", granted5)[0]
	before.waits(look, "LOCK busy", 1)
	before.Send("RESUME a lease=%s", lease)
	next.Say("RESUME a lease="+lease, granted5)
	before.Conn.Close()
	look.Until("STATUS", `connections=3\b`)
	next.Say("CHECK a", granted5)
	look.Say("TRY a", `ERR HELD .*`)
}

// Also where nobody has noticed yet that he is gone: what he sent is begun, and the
// connection not read from since.
func TestGoneClientResumesNothingUnnoticed(t *testing.T) {
	s := newSuccession(t)
	holder, session := s.dialUnkept()
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
	session.listing <- struct{}{} // has LIST wait, of all of this user
	go s.server.ServeConn(theirs)
	<-s.opened
	s.log.Await(t, "answer: verb=RESUME")
	<-session.listing
	holder.Until("STATUS", `connections=1\b`)
	holder.Say("CHECK a", granted5)
	s.dial().Say("TRY a", `ERR HELD .*`)
}

// So is one that is cut off: he would have what another one holds be extended no more.
func TestCutClientResumesNothing(t *testing.T) {
	s := newSuccession(t)
	s.server.LineTimeout = time.Millisecond
	holder, before, look := s.dial(), s.dial(), s.dial()
	holder.Say("LOCK busy", granted5)
	lease := holder.Say("LOCK a", granted5)[0]
	before.waits(look, "LOCK busy", 1)
	if _, err := fmt.Fprintf(before.Conn, "RESUME a lease=%s\nPI", lease); err != nil {
		t.Fatal(err)
	}
	before.Want(`ERR CANCELLED lock=busy .*`)
	before.Want(`ERR CANCELLED lock=a .*`)
	before.Want(`ERR SYNTAX : a line was not ended .*`)
	look.Until("STATUS", `connections=2\b`)
	holder.Say("CHECK a", granted5)
}

// Of two that resume a lease while the nodes are slow, one has it then, and the other one is
// not told that it has: what is noted of him would be that the lease ends with him.
func TestOneOfTwoHasResumed(t *testing.T) {
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
		next.Until("CHECK a", `OK lock=a .*`) // it is there now
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

// Who resumes a lease in the moment in which it is given up, with a connection that is cut,
// is told that it is lost.
func TestResumedWhileItIsGivenUp(t *testing.T) {
	s := newSuccession(t)
	w, next := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, granted5)
	s.d.letExpire(s.d.Leases.get(lease)) // as the end of the old connection would, just before
	next.Want(`LOST lock=a lease=` + lease + ` reason=quorum .*`)
	next.Say("CHECK a", `ERR LOST lock=a reason=quorum .*`)
}

// A lease that is given up in the moment of its RESUME is forgotten after an hour like any
// other that was lost.
func TestGivenUpIsRememberedForAnHour(t *testing.T) {
	s := newSuccession(t)
	w, next := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, granted5)
	h := s.d.Leases.get(lease)
	s.d.letExpire(h)
	next.Want(`LOST lock=a lease=` + lease + ` reason=quorum .*`)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lostAt == 0 {
		t.Error("when it was lost is not known, so it is never too old")
	}
}

// What another connection has given back just before is not given up: the next daemon would
// take it for held.
func TestGivenBackIsNotGivenUp(t *testing.T) {
	s := newSuccession(t)
	nodes := slices.Clone(s.nodes)
	down := s.nodesMayFail()
	copy(s.nodes[1:], nodes[1:]) // the first one alone
	s.end()
	s.start()
	w, look := s.dial(), s.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	h := s.d.Leases.get(lease)
	down.Store(true) // it hears of no release, which stays noted
	look.Say("UNLOCK lease="+lease, `OK lock=a`)
	s.d.letExpire(h) // as the end of its connection would, that is cut at the same time
	w.Say("PING", `OK`)
	s.end()
	s.found = func(p *state.Recovered) {
		if l := leaseOf(t, p, "a"); l == nil || l.Phase != state.PhaseReleased {
			t.Errorf("noted is %+v, want that it is being given back", l)
		}
	}
	s.start()
}
