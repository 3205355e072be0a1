package session

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/state"
)

// of another lock, and what is the same but for the kind of lock is another one.
func TestLockRepeatedWithOneIDForSeveral(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	names := []string{"a", "b", "c,d", "c%2Cd"}
	leases := map[string]string{}
	for _, name := range names {
		leases[name] = w.say("LOCK "+name+" ttl=20s id=1", granted5)[0]
	}
	w.say("LOCK shared mode=shared ttl=20s id=1", granted5)
	w.say("LOCK kept ttl=20s id=1", granted5)
	s.end()
	w.want(`BYE .*`)
	s.start()
	again, _ := s.dialUnkept()
	for _, name := range names {
		if got := again.say("LOCK "+name+" wait=0 id=1", granted5+` again=yes`)[0]; got != leases[name] {
			t.Errorf("%s: the lease %s, want %s", name, got, leases[name])
		}
	}
	again.say("LOCK shared wait=0 id=1", `ERR HELD .*`)
	again.say("LOCK kept hold=ttl wait=0 id=1", `ERR HELD .*`)
}

// What was lost meanwhile is no answer to the LOCK that is repeated: it gets a new lease.
func TestLostLockIsNotRepeated(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	lost := w.say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	s.start()
	w, _ = s.dialUnkept()
	w.say("FORCE a", `OK lock=a n=1 .*`)
	if got := w.say("LOCK a wait=10s id=1", granted5)[0]; got == lost {
		t.Error("it has the lease that is lost")
	}
}

// he had is given back at once.
func TestRepeatedLockOfAGoneClient(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	w.say("LOCK a ttl=20s id=1", granted5)
	s.end()
	s.start()
	look, _ := s.dialUnkept()
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
	look.say("LOCK a wait=10s", granted5)
}

// Where the daemon stops while it waits for a quorum, it is repeated once more, of the next one.
func TestRepeatedLockIsLeftToTheNextDaemon(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	lease := w.say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	down := s.nodesMayFail()
	s.start()
	w, _ = s.dialUnkept()
	down.Store(true)
	w.send("@1 LOCK a ttl=20s id=1")
	w.until("CHECK a", `OK lock=a .*`) // it is this connection's now
	s.end()
	down.Store(false)
	s.start()
	w, _ = s.dialUnkept()
	if got := w.say("LOCK a ttl=20s id=1", granted5+` again=yes`)[0]; got != lease {
		t.Errorf("the lease %s, want %s", got, lease)
	}
}

// Once it is a connection's again, it is that one's, also when that has ended (linger=).
func TestRepeatedLockIsTakenOnce(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	for n := 1; n <= 2; n++ {
		w.say(fmt.Sprint("LOCK a reentrant=yes ttl=20s linger=20s id=", n), counted(n))
	}
	s.end()
	s.start()
	w, _ = s.dialUnkept()
	w.say("LOCK a reentrant=yes id=2", counted(2)+` again=yes`)
	w.conn.Close()
	w, _ = s.dialUnkept()
	w.until("STATUS", `connections=1\b`)
	w.say("LOCK a reentrant=yes wait=0 id=1", `ERR HELD .*`)
}

// a restart.
func TestRepeatedLockIsCounted(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	w.say("LOCK a reentrant=yes ttl=20s id=1", counted(1))
	w.say("LOCK a reentrant=yes ttl=20s id=2", counted(2))
	s.end()
	s.start()
	w, _ = s.dialUnkept()
	w.say("LOCK a reentrant=yes ttl=20s id=1", counted(2)+` again=yes`)
}

// the same id=.
func TestLockOfAnotherProcessIsNotRepeated(t *testing.T) {
	s := newSuccession(t)
	c := newChild(t, os.Getuid())
	w, _ := s.dialUnkept()
	lease := w.say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	s.found = func(p *state.Recovered) {
		for _, l := range p.Leases {
			l.Holder.PID = c.pid
		}
	}
	s.start()
	w, _ = s.dialUnkept()
	w.say("TRY a id=1", `ERR HELD .*`)
	c.end()
	if got := w.say("TRY a id=1", granted5+` again=yes`)[0]; got != lease {
		t.Errorf("the lease %s, want %s", got, lease)
	}
}

// if it were new, and what is refused leaves nothing.
func TestRepeatedLockWithoutQuorum(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	w.say("LOCK a ttl=20s id=1", granted5)
	refused := w.say("LOCK b ttl=20s id=1", granted5)[0]
	w.say("LOCK c reentrant=yes ttl=20s id=1", counted(1))
	w.say("LOCK c reentrant=yes ttl=20s id=2", counted(2))
	w.say("LOCK d ttl=6s id=1", granted5)
	s.end()
	down := s.nodesMayFail()
	s.start()
	w, _ = s.dialUnkept()
	look, _ := s.dialUnkept()
	brief, _ := s.dialUnkept()
	down.Store(true)
	brief.send("LOCK d ttl=6s id=1")
	w.send("@a LOCK a ttl=20s id=1")
	w.say("LOCK b ttl=20s wait=0 id=1", `ERR NOQUORUM lock=b .*`)
	w.say("LOCK c reentrant=yes ttl=20s wait=150ms id=2", `ERR NOQUORUM lock=c .*`)
	brief.wantAll(`LOST lock=d .*`, `ERR NOQUORUM lock=d .*`) // at one instant
	down.Store(false)
	w.want(`@a ` + granted5 + ` again=yes`)
	look.say("LOCK b wait=20s", granted5)
	if s.d.Leases.get(refused) != nil {
		t.Error("what was refused is known for ever")
	}
	s.end()
	s.start()
	w, _ = s.dialUnkept()
	look, _ = s.dialUnkept()
	w.say("LOCK c reentrant=yes ttl=20s id=1", counted(1)+` again=yes`)
	w.say("UNLOCK c", `OK lock=c`)
	look.say("LOCK c wait=20s", granted5)
}

// was undone before.
func TestFurtherLocksAreRepeated(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	for n := 1; n <= 4; n++ {
		w.say(fmt.Sprint("LOCK a,b reentrant=yes ttl=20s id=", n), granted(`a,b`)+fmt.Sprint(` count=`, n))
	}
	w.say("UNLOCK a,b", `OK lock=a,b count=3`)
	w.say("LOCK t hold=ttl ttl=20s id=1", granted(`t`)) // may be left on purpose
	lock := granted(`a,b`) + ` count=3 again=yes`
	s.end()
	s.start()
	w, _ = s.dialUnkept()
	w.send("@3 LOCK a,b reentrant=yes id=3")
	w.send("@1 LOCK a,b reentrant=yes id=1")
	w.send("@2 LOCK a,b reentrant=yes id=2")
	answers(w, "@9 PING", `@9 OK`, `@1 `+lock, `@2 `+lock, `@3 `+lock)
	s.end()
	s.start()
	w, _ = s.dialUnkept()
	w.say("LOCK t wait=0 id=1", `ERR HELD .*`)
	w.say("LOCK a,b reentrant=yes id=3", lock)
	w.say("UNLOCK a,b", `OK lock=a,b count=2`)
	w.say("UNLOCK a,b", `OK lock=a,b count=1`)
	w.say("LOCK a,b reentrant=yes id=2", granted(`a,b`)+` count=2`)
	w.say("LOCK a,b reentrant=yes id=1", granted(`a,b`)+` count=2 again=yes`)
	w.say("LOCK a,b reentrant=yes id=4", granted(`a,b`)+` count=3`)
}
