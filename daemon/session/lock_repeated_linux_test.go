package session

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/state"
)

// After a restart, the daemon finds the lease of a repeated LOCK by id= and names together: a
// client may use one id= for several locks. A LOCK of another kind is another request.
func TestLockRepeatedWithOneIDForSeveral(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	names := []string{"a", "b", "c,d", "c%2Cd"}
	leases := map[string]string{}
	for _, name := range names {
		leases[name] = w.Say("LOCK "+name+" ttl=20s id=1", granted5)[0]
	}
	w.Say("LOCK shared mode=shared ttl=20s id=1", granted5)
	w.Say("LOCK kept ttl=20s id=1", granted5)
	s.end()
	w.Want(`BYE .*`)
	s.start()
	again, _ := s.dialUnstored()
	for _, name := range names {
		if got := again.Say("LOCK "+name+" wait=0 id=1", granted5+` again=yes`)[0]; got != leases[name] {
			t.Errorf("%s: got the lease %s, want %s", name, got, leases[name])
		}
	}
	again.Say("LOCK shared wait=0 id=1", `ERR HELD .*`)
	again.Say("LOCK kept hold=ttl wait=0 id=1", `ERR HELD .*`)
}

// If the lease was lost meanwhile, the repeated LOCK gets a new lease.
func TestLostLockIsNotRepeated(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	lost := w.Say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	s.start()
	w, _ = s.dialUnstored()
	w.Say("FORCE a", `OK lock=a n=1 .*`)
	if got := w.Say("LOCK a wait=10s id=1", granted5)[0]; got == lost {
		t.Error("the LOCK got the lost lease")
	}
}

// If the client has closed its connection when its repeated LOCK is read, its lease is released at
// once.
func TestRepeatedLockOfAGoneClient(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	w.Say("LOCK a ttl=20s id=1", granted5)
	s.end()
	s.start()
	look, _ := s.dialUnstored()
	ours, theirs, err := devnodes.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(ours, "LOCK a ttl=20s id=1"); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	go s.server.ServeConn(theirs)
	<-s.opened
	look.Say("LOCK a wait=10s", granted5)
}

// If the daemon stops while a repeated LOCK waits for a quorum, the client can repeat it with the
// next daemon.
func TestRepeatedLockIsLeftToTheNextDaemon(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	lease := w.Say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	down := s.nodesMayFail()
	s.start()
	w, _ = s.dialUnstored()
	down.Store(true)
	w.Send("@1 LOCK a ttl=20s id=1")
	w.Until("CHECK a", `OK lock=a .*`) // this connection has the lease now
	s.end()
	down.Store(false)
	s.start()
	w, _ = s.dialUnstored()
	if got := w.Say("LOCK a ttl=20s id=1", granted5+` again=yes`)[0]; got != lease {
		t.Errorf("got the lease %s, want %s", got, lease)
	}
}

// A lease can be taken over by one connection only. No other connection gets it by repeating the
// LOCK, even if the first has ended and the lease lingers (linger=).
func TestRepeatedLockIsTakenOnce(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	for n := 1; n <= 2; n++ {
		w.Say(fmt.Sprint("LOCK a reentrant=yes ttl=20s linger=20s id=", n), counted(n))
	}
	s.end()
	s.start()
	w, _ = s.dialUnstored()
	w.Say("LOCK a reentrant=yes id=2", counted(2)+` again=yes`)
	w.Conn.Close()
	w, _ = s.dialUnstored()
	w.Until("STATUS", `connections=1\b`)
	w.Say("LOCK a reentrant=yes wait=0 id=1", `ERR HELD .*`)
}

// After a restart, each id= of a repeated LOCK still counts once.
func TestRepeatedLockIsCounted(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	w.Say("LOCK a reentrant=yes ttl=20s id=1", counted(1))
	w.Say("LOCK a reentrant=yes ttl=20s id=2", counted(2))
	s.end()
	s.start()
	w, _ = s.dialUnstored()
	w.Say("LOCK a reentrant=yes ttl=20s id=1", counted(2)+` again=yes`)
}

// A LOCK does not get the lease of another living process, even with the same id=. Once that process
// has ended, it does.
func TestLockOfAnotherProcessIsNotRepeated(t *testing.T) {
	s := newSuccession(t)
	c := newChild(t, os.Getuid())
	w, _ := s.dialUnstored()
	lease := w.Say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	s.found = func(p *state.Recovered) {
		for _, l := range p.Leases {
			l.Holder.PID = c.pid
		}
	}
	s.start()
	w, _ = s.dialUnstored()
	w.Say("TRY a id=1", `ERR HELD .*`)
	c.end()
	if got := w.Say("TRY a id=1", granted5+` again=yes`)[0]; got != lease {
		t.Errorf("got the lease %s, want %s", got, lease)
	}
}

// Without a quorum, a repeated LOCK waits as a new one does. A refused one leaves nothing behind.
func TestRepeatedLockWithoutQuorum(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	w.Say("LOCK a ttl=20s id=1", granted5)
	refused := w.Say("LOCK b ttl=20s id=1", granted5)[0]
	w.Say("LOCK c reentrant=yes ttl=20s id=1", counted(1))
	w.Say("LOCK c reentrant=yes ttl=20s id=2", counted(2))
	w.Say("LOCK d ttl=6s id=1", granted5)
	s.end()
	down := s.nodesMayFail()
	s.start()
	w, _ = s.dialUnstored()
	look, _ := s.dialUnstored()
	brief, _ := s.dialUnstored()
	down.Store(true)
	brief.Send("LOCK d ttl=6s id=1")
	w.Send("@a LOCK a ttl=20s id=1")
	w.Say("LOCK b ttl=20s wait=0 id=1", `ERR NOQUORUM lock=b .*`)
	w.Say("LOCK c reentrant=yes ttl=20s wait=150ms id=2", `ERR NOQUORUM lock=c .*`)
	brief.wantAll(`LOST lock=d .*`, `ERR NOQUORUM lock=d .*`) // at one instant
	down.Store(false)
	w.Want(`@a ` + granted5 + ` again=yes`)
	look.Say("LOCK b wait=20s", granted5)
	if s.d.leaseByID(refused) != nil {
		t.Error("the refused lease is still registered")
	}
	s.end()
	s.start()
	w, _ = s.dialUnstored()
	look, _ = s.dialUnstored()
	w.Say("LOCK c reentrant=yes ttl=20s id=1", counted(1)+` again=yes`)
	w.Say("UNLOCK c", `OK lock=c`)
	look.Say("LOCK c wait=20s", granted5)
}

// Each LOCK that was counted (reentrant=yes) can be repeated after a restart, in any order. An UNLOCK
// before the restart stays done.
func TestFurtherLocksAreRepeated(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnstored()
	for n := 1; n <= 4; n++ {
		w.Say(fmt.Sprint("LOCK a,b reentrant=yes ttl=20s id=", n), granted(`a,b`)+fmt.Sprint(` count=`, n))
	}
	w.Say("UNLOCK a,b", `OK lock=a,b count=3`)
	w.Say("LOCK t hold=ttl ttl=20s id=1", granted(`t`)) // its client may leave it on purpose
	lock := granted(`a,b`) + ` count=3 again=yes`
	s.end()
	s.start()
	w, _ = s.dialUnstored()
	w.Send("@3 LOCK a,b reentrant=yes id=3")
	w.Send("@1 LOCK a,b reentrant=yes id=1")
	w.Send("@2 LOCK a,b reentrant=yes id=2")
	answers(w, "@9 PING", `@9 OK`, `@1 `+lock, `@2 `+lock, `@3 `+lock)
	s.end()
	s.start()
	w, _ = s.dialUnstored()
	w.Say("LOCK t wait=0 id=1", `ERR HELD .*`)
	w.Say("LOCK a,b reentrant=yes id=3", lock)
	w.Say("UNLOCK a,b", `OK lock=a,b count=2`)
	w.Say("UNLOCK a,b", `OK lock=a,b count=1`)
	w.Say("LOCK a,b reentrant=yes id=2", granted(`a,b`)+` count=2`)
	w.Say("LOCK a,b reentrant=yes id=1", granted(`a,b`)+` count=2 again=yes`)
	w.Say("LOCK a,b reentrant=yes id=4", granted(`a,b`)+` count=3`)
}
