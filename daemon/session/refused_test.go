package session

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
)

// FORCE and RESUME are refused where too few nodes answer, as all else is, and RESUME by
// whoever does not say what the LOCK said. The lease stands as it did.
func TestRefusals(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next, look := d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a owner=mine ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, `ERR OPTION lock=a : .*another owner=.*`)
	next.Say("RESUME b owner=mine lease="+lease, `ERR NOTHELD .*`)
	w.Say("CHECK a owner=mine", granted5)
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	next.Say("RESUME a owner=mine lease="+lease, `ERR NOQUORUM lock=a .*`)
	look.Say("FORCE a", `ERR NOQUORUM lock=a .*`)
	for _, server := range d.Nodes.Servers[:2] {
		if err := server.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	look.Say("CHECK lease="+lease, granted5)
}

// Nothing that a request says is let fall: an owner= beside lease= is that of its LOCK.
func TestOwnerBesideLease(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, other := d.dial(), d.dial()
	lease := w.Say("LOCK a owner=mine ttl=20s beat=20s", granted5)[0]
	for _, verb := range []string{"CHECK", "EXTEND", "BEAT", "UNLOCK"} {
		for _, owner := range []string{"another", "%20"} {
			other.Say(verb+" lease="+lease+" owner="+owner, `ERR OPTION : owner=.*another owner=.*`)
		}
	}
	for _, verb := range []string{"CHECK", "EXTEND", "BEAT", "UNLOCK"} {
		other.Say(verb+" a lease="+lease+" owner=mine", `OK lock=a.*`)
	}
}

// A further LOCK that waits with the first ends with the input, as that one does.
func TestFurtherInputEnded(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, look := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	for range 20 {
		w := d.dial()
		w.waits(look, "@1 LOCK a reentrant=yes", 1)
		w.Send("@2 LOCK a reentrant=yes\n@3 LOCK a reentrant=yes")
		w.Conn.CloseWrite()
		for range 3 {
			w.Want(`@\d ERR CANCELLED lock=a : .*input ended.*`)
		}
		w.Ends()
	}
}

// A lost lease is told of for an hour, and then is as any other that is not there.
func TestLostLeasesGrowOld(t *testing.T) {
	d := settledDaemon(t)
	var later atomic.Int64
	d.Clock = func() time.Duration { return redlock.BootTime() + time.Duration(later.Load()) }
	w, _ := dialWithin(t, d.NewServer())
	w.Say("LOCK a", granted5)
	w.Say("LOCK b", granted5)
	answers(w, "FORCE a", `OK lock=a n=1 .*`, `LOST lock=a .*`)
	later.Store(int64(rememberLossFor - time.Minute))
	w.Say("CHECK a", `ERR LOST lock=a reason=forced : .*`)
	later.Store(int64(rememberLossFor + time.Minute))
	w.Say("CHECK b", granted5) // one that is held does not grow old
	w.Say("CHECK a", `ERR NOTHELD lock=a : .*`)
	w.Say("UNLOCK a", `ERR NOTHELD lock=a : .*`)
}

// Of what is given back for a client that is gone nothing stays: there are many clients.
func TestNothingStaysOfWhoIsGone(t *testing.T) {
	d := settledDaemon(t)
	w, hangUp := dialWithin(t, d.NewServer())
	w.Say("LOCK a", granted5)
	w.Say("LOCK b,c", granted(`b,c`))
	w.Say("LOCK d linger=1", granted5)
	answers(w, "FORCE b", `OK lock=b n=1 .*`, `LOST lock=b,c .*`)
	if n := len(d.Leases.all()); n != 3 {
		t.Errorf("%d leases are known, want 3", n)
	}
	hangUp()
	daemontest.Eventually(t, "no lease is known, no user, and nobody stands in a line", func() bool {
		return len(d.Leases.all()) == 0 && d.Limits.IsEmpty() && d.Queue.Len() == 0
	})
}
