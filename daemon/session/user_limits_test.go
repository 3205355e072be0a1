package session

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
)

func TestLostLeasesAreBounded(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser = 3 })
	a, b := d.dial(), d.dial()
	lose := func(w *wire, name string) {
		t.Helper()
		w.Say("LOCK "+name+" hold=ttl ttl=100ms", granted5)
		w.Want(`LOST lock=` + name + ` .*`)
	}
	for _, name := range []string{"a1", "a2", "a3"} {
		lose(a, name)
	}
	lose(b, "b")
	b.Until("CHECK b", `ERR NOTHELD`)
	a.Say("CHECK a1", `ERR LOST .*`)
	lose(a, "a4") // the daemon forgets the oldest one instead
	a.Until("CHECK a1", `ERR NOTHELD`)
	a.Say("CHECK a4", `ERR LOST .*`)
	a.Say("QUIT", `OK`)
	a.Ends()
	daemontest.Eventually(t, "the limit has room again", func() bool {
		lose(b, "b")
		lose(b, "c") // b would be forgotten by now if there was no room
		b.Send("CHECK b")
		return b.Line()[:8] == "ERR LOST"
	})
}

func TestWaitZeroIsNoWaiter(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser, c.Limits.WaitersPerUser = 4, 1 })
	a, b := d.dial(), d.dial()
	a.Say("LOCK a", granted5)
	b.Send("@1 LOCK a")
	a.Until("LIST", `state=waiting`)
	a.Say("LOCK b", `ERR LIMIT lock=b : .*waiters_per_user = 1`)
	a.Say("LOCK b wait=1s", `ERR LIMIT lock=b : .*waiters_per_user = 1`)
	a.Say("TRY b", granted5)
	a.Say("LOCK c wait=0", granted5)
	a.Say("TRY d", `ERR LIMIT lock=d : .*leases_per_user = 4, of which 1 only wait for a lock`)
	a.Say("UNLOCK c", `OK lock=c`)
	a.Say("UNLOCK a", `OK lock=a`)
	b.Want(`@1 ` + granted5)
	a.Say("TRY a", `ERR HELD .*`) // a refused request no longer counts
	a.Say("LOCK c", granted5)     // no client waits
}

func TestNamesCountAsLeases(t *testing.T) {
	d := startDaemon(t, 1, func(c *config.Config) { c.Limits.LeasesPerUser = 4 })
	a, other := d.dial(), d.another().dial()
	for range 2 {
		a.Say("LOCK a,b,c", granted(`a,b,c`))
		a.Say("TRY d,e", `ERR LIMIT lock=d,e : .*leases_per_user = 4, and this would be 2 more: each name counts`)
		a.Say("TRY d", granted(`d`))
		a.Say("UNLOCK d", `OK lock=d`)
		a.Say("UNLOCK a,b,c", `OK lock=a,b,c`)
		a.Say("TRY a,b,c,d,e", `ERR LIMIT lock=a,b,c,d,e : .*`)
		other.Say("LOCK c", granted(`c`))
		a.Say("TRY a,b,c", `ERR HELD lock=a,b,c .*`) // a refused request no longer counts
		other.Say("UNLOCK c", `OK lock=c`)
	}
}
