package session

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

func TestLostLeasesAreBounded(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser = 3 })
	a, b := d.dial(), d.dial()
	lose := func(w *wire, name string) {
		t.Helper()
		w.say("LOCK "+name+" hold=ttl ttl=100ms", granted5)
		w.want(`LOST lock=` + name + ` .*`)
	}
	for _, name := range []string{"a1", "a2", "a3"} {
		lose(a, name)
	}
	lose(b, "b")
	b.until("CHECK b", `ERR NOTHELD`)
	a.say("CHECK a1", `ERR LOST .*`)
	lose(a, "a4") // for which another one goes
	a.until("CHECK a1", `ERR NOTHELD`)
	a.say("CHECK a4", `ERR LOST .*`)
	a.say("QUIT", `OK`)
	a.ends()
	eventually(t, "there is room again", func() bool {
		lose(b, "b")
		lose(b, "c") // by then b would be forgotten, were it one too many
		b.send("CHECK b")
		return b.line()[:8] == "ERR LOST"
	})
}

func TestOnlyThePatientAreWaiters(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser, c.Limits.WaitersPerUser = 4, 1 })
	a, b := d.dial(), d.dial()
	a.say("LOCK a", granted5)
	b.send("@1 LOCK a")
	a.until("LIST", `state=waiting`)
	a.say("LOCK b", `ERR LIMIT lock=b : .*waiters_per_user = 1`)
	a.say("LOCK b wait=1s", `ERR LIMIT lock=b : .*waiters_per_user = 1`)
	a.say("TRY b", granted5)
	a.say("LOCK c wait=0", granted5)
	a.say("TRY d", `ERR LIMIT lock=d : .*leases_per_user = 4, of which 1 only wait for a lock`)
	a.say("UNLOCK c", `OK lock=c`)
	a.say("UNLOCK a", `OK lock=a`)
	b.want(`@1 ` + granted5)
	a.say("TRY a", `ERR HELD .*`) // which counts for nothing when it is over
	a.say("LOCK c", granted5)     // nobody waits
}

func TestNamesCountAsLeases(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser = 4 })
	a, other := d.dial(), d.another().dial()
	for range 2 {
		a.say("LOCK a,b,c", granted(`a,b,c`))
		a.say("TRY d,e", `ERR LIMIT lock=d,e : .*leases_per_user = 4, and this would be 2 more: each name counts`)
		a.say("TRY d", granted(`d`))
		a.say("UNLOCK d", `OK lock=d`)
		a.say("UNLOCK a,b,c", `OK lock=a,b,c`)
		a.say("TRY a,b,c,d,e", `ERR LIMIT lock=a,b,c,d,e : .*`)
		other.say("LOCK c", granted(`c`))
		a.say("TRY a,b,c", `ERR HELD lock=a,b,c .*`) // which counts for nothing when it is over
		other.say("UNLOCK c", `OK lock=c`)
	}
}

// An index remembers a thousand lost leases, and forgets the oldest of them, each once.

func TestDeskRemembers(t *testing.T) {
	k, all := &leaseIndex{}, make([]*heldLease, maxRemembered+3)
	for i := range all {
		all[i] = &heldLease{waiter: *newTestWaiter("a")}
	}
	k.remember(all[0], false)
	k.remove(all[0])
	for i, h := range all[1:] {
		var want *heldLease
		if i >= maxRemembered {
			want = all[1+i-maxRemembered]
		}
		if got := k.remember(h, false); got != want {
			t.Fatalf("with %d that are remembered: the wrong one is forgotten, or none", i)
		}
	}
}
