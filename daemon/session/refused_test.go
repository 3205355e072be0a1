package session

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
)

// FORCE and RESUME are refused if too few nodes answer. RESUME is also refused if its names or
// owner= differ from the LOCK's. The lease stays as it was.
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

// No option is ignored: an owner= beside lease= must be the LOCK's.
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

// When the input ends, a further LOCK of the same owner ends with the first one that it waits for.
func TestFurtherInputEnded(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, look := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	for range 20 {
		w := d.dial()
		w.sendWaiting(look, "@1 LOCK a reentrant=yes", 1)
		w.Send("@2 LOCK a reentrant=yes\n@3 LOCK a reentrant=yes")
		w.EndInput()
		for range 3 {
			w.Want(`@\d ERR CANCELLED lock=a : .*input ended.*`)
		}
		w.Ends()
	}
}

// A lost lease is reported as lost for an hour, and then as not held.
func TestLostLeasesAreForgotten(t *testing.T) {
	d := readyHost(t)
	var later atomic.Int64
	d.Clock = func() time.Duration { return redlock.BootTime() + time.Duration(later.Load()) }
	w, _ := dialWithin(t, d.NewServer())
	w.Say("LOCK a", granted5)
	w.Say("LOCK b", granted5)
	answers(w, "FORCE a", `OK lock=a n=1 .*`, `LOST lock=a .*`)
	later.Store(int64(rememberLossFor - time.Minute))
	w.Say("CHECK a", `ERR LOST lock=a reason=forced : .*`)
	later.Store(int64(rememberLossFor + time.Minute))
	w.Say("CHECK b", granted5) // a lease that is held is not forgotten
	w.Say("CHECK a", `ERR NOTHELD lock=a : .*`)
	w.Say("UNLOCK a", `ERR NOTHELD lock=a : .*`)
}

// Nothing remains of leases that were released because the client is gone: there are many clients.
func TestGoneClientLeavesNothing(t *testing.T) {
	d := readyHost(t)
	w, hangUp := dialWithin(t, d.NewServer())
	w.Say("LOCK a", granted5)
	w.Say("LOCK b,c", granted(`b,c`))
	w.Say("LOCK d linger=1", granted5)
	answers(w, "FORCE b", `OK lock=b n=1 .*`, `LOST lock=b,c .*`)
	if n := len(d.allLeases()); n != 3 {
		t.Errorf("%d leases are known, want 3", n)
	}
	hangUp()
	daemontest.Eventually(t, "no lease, no user and no waiter remains", func() bool {
		return len(d.allLeases()) == 0 && d.Limits.IsEmpty() && locked(d, d.table.CountsNothing) && queued(d) == 0
	})
}
