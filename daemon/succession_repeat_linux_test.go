package daemon

import (
	"fmt"
	"os"
	"testing"
)

// A LOCK is repeated by its id= and its names: the same client may have said the same id=
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

// A LOCK that is counted is answered with the count, once, also where it is repeated after
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

// What another process has got that lives, and may be at work, is not handed to who says
// the same id=.
func TestLockOfAnotherProcessIsNotRepeated(t *testing.T) {
	s := newSuccession(t)
	c := newChild(t, os.Getuid())
	w, _ := s.dialUnkept()
	lease := w.say("LOCK a ttl=20s id=1", granted5)[0]
	s.end()
	s.found = func(p *past) {
		for _, l := range p.leases {
			l.holder.pid = c.pid
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

// Where no quorum confirms the lease, a LOCK that is repeated waits for one as it would
// if it were new, and what is refused leaves nothing.
func TestRepeatedLockWithoutQuorum(t *testing.T) {
	s := newSuccession(t)
	w, _ := s.dialUnkept()
	w.say("LOCK a ttl=20s id=1", granted5)
	w.say("LOCK b ttl=20s id=1", granted5)
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
	w.say("LOCK c reentrant=yes ttl=20s id=1", counted(1)+` again=yes`)
	w.say("UNLOCK c", `OK lock=c`)
	look.say("LOCK c wait=20s", granted5)
}

// So is one that counted up, whichever is repeated first, or all at once; but not one that
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
