package session

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/redlock"
)

// The grant of a semaphore, and the fields that describe a holder.
const (
	grantedSlot = granted5 + ` slot=([1-9]\d*)`
	holderWords = `host=\S+ pid=\d+ user=\S+ since=\d+`
)

// longNodeTimeout keeps nodes from failing while many clients make the machine busy.
func longNodeTimeout(cfg *config.Config) { cfg.Quorum.NodeTimeout = time.Second }

// 64 readers hold the lock at the same time. A writer gets it when they have gone, though more
// readers ask.
func TestReadersTogether(t *testing.T) {
	const readers = 64
	d := startDaemon(t, 5, longNodeTimeout)
	look := d.dial()
	var wires []*wire
	for range readers {
		w := d.dial()
		w.Say("LOCK a mode=shared", granted5)
		wires = append(wires, w)
	}
	look.Send("WHO a")
	for range readers {
		look.Want(`- lock=a mode=shared ` + holderWords + ` ttl=\d+ held=[345] nodes=5`)
	}
	look.Want(`OK n=64`)
	look.Say("TRY a", `ERR HELD lock=a mode=shared ttl=\d+ `+holderWords+` : a: shared by others, .*`)
	writer := d.dial()
	writer.sendWaiting(look, "LOCK a", 1)
	late := d.dial()
	late.Say("TRY a mode=shared", `ERR HELD lock=a mode=shared waiting=yes `+holderWords+` : .*already waits until they end`)
	late.sendWaiting(look, "LOCK a mode=shared", 2)
	for _, w := range wires[1:] {
		w.Say("UNLOCK a", `OK lock=a`)
	}
	look.Say("TRY a mode=shared", `ERR HELD .*`)
	wires[0].Say("UNLOCK a", `OK lock=a`)
	writer.Want(granted5)
	look.Say("TRY a mode=shared", `ERR HELD lock=a ttl=.*`)
	writer.Say("UNLOCK a", `OK lock=a`)
	late.Want(granted5)
	late.Conn.Close()
	d.AwaitNoKeys()
}

// Readers come and go without end. A writer waits only for the readers that were there before it.
func TestWriterIsNotStarved(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	var stop atomic.Bool
	var wg sync.WaitGroup
	var writing, reading atomic.Int32
	for i := range 8 {
		w := d.dial()
		wg.Go(func() {
			for !stop.Load() {
				w.Say("LOCK a mode=shared", granted5)
				reading.Add(1)
				if writing.Load() != 0 {
					t.Errorf("reader %d has the lock beside a writer", i)
				}
				reading.Add(-1)
				w.Say("UNLOCK a", `OK lock=a`)
			}
		})
	}
	writer := d.dial()
	for range 20 {
		writer.Say("LOCK a wait=10s", granted5)
		writing.Add(1)
		if reading.Load() != 0 {
			t.Error("a writer has the lock beside readers")
		}
		writing.Add(-1)
		writer.Say("UNLOCK a", `OK lock=a`)
	}
	stop.Store(true)
	wg.Wait()
}

// Of ten clients, at most three hold one of three slots at once. No two have the same slot, and all
// get one.
func TestSlots(t *testing.T) {
	const clients, slots, rounds = 10, 3, 10
	d := startDaemon(t, 5, longNodeTimeout)
	var taken [slots + 1]atomic.Int32
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range clients {
		w := d.dial()
		wg.Go(func() {
			for range rounds {
				slot := int(duration(t, w.Say("LOCK a slots=3", grantedSlot)[3]) / time.Millisecond)
				if slot > slots || taken[slot].Add(1) != 1 {
					t.Errorf("slot %d is taken twice, or does not exist", slot)
					return
				}
				for n := inside.Add(1); n > most.Load(); {
					most.Store(n)
				}
				w.Say("CHECK a", fmt.Sprint(granted5, ` slot=`, slot))
				inside.Add(-1)
				taken[slot].Add(-1)
				w.Say("UNLOCK a", `OK lock=a`)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n < 2 || n > slots {
		t.Errorf("at most %d clients held a slot at once, want 2 to %d", n, slots)
	}
	d.AwaitNoKeys()
}

// WHO and LIST show the slots. Another number of slots is refused, and so is another kind.
func TestSlotsAreShown(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	a, b, look := d.dial(), d.dial(), d.dial()
	one := a.Say("LOCK a slots=2", grantedSlot)[3]
	two := b.Say("LOCK a slots=2", grantedSlot)[3]
	if one == two {
		t.Fatalf("both have slot %s", one)
	}
	look.Send("WHO a")
	for range 2 {
		slot := look.Want(`- lock=a mode=exclusive slots=2 slot=([12]) ` + holderWords + ` ttl=\d+ held=3 nodes=3`)[0]
		if slot != one && slot != two {
			t.Errorf("WHO shows slot %s", slot)
		}
	}
	look.Want(`OK n=2`)
	look.Say("LIST", `- lock=a state=held mode=exclusive slots=2 pid=\d+ user=\S+ since=\d+ slot=`+one+` fence=\d+ ttl=\d+`)
	look.Want(`- lock=a state=held .* slot=` + two + ` .*`)
	look.Want(`OK n=2`)
	for _, request := range []string{"TRY a slots=2", "TRY a slots=3", "TRY a", "TRY a mode=shared"} {
		look.Say(request, `ERR HELD lock=a slots=2 ttl=\d+ `+holderWords+` : a: a semaphore of 2 slots: .*`)
	}
	a.Say("UNLOCK a", `OK lock=a`)
	look.Say("TRY a slots=3", `ERR HELD .*`)
	look.Say("TRY a slots=2", granted5+` slot=`+one)
}

// A LOCK of several names gets all or none, in one lease that is found by the whole list.
func TestSeveralNames(t *testing.T) {
	d := startDaemon(t, 5, longNodeTimeout)
	a, b := d.dial(), d.dial()
	lease := a.Say("LOCK x%2C,b,%C3%A4 ttl=20s", granted(`x%2C,b,ä`))[0]
	daemontest.Eventually(t, "three names are on five nodes", func() bool { return len(d.Keys()) == 3*5 })
	for _, name := range []string{"x%2C", "b", "ä"} {
		b.Say("TRY "+name, `ERR HELD lock=`+name+` ttl=\d+ `+holderWords+` : .*`)
		b.Say("WHO "+name, `- lock=`+name+` mode=exclusive `+holderWords+` ttl=\d+ held=5 nodes=5`)
		b.Want(`OK n=1`)
		a.Say("LOCK "+name, `ERR ALREADY lock=`+name+` : .*within x,,b,ä.*`)
		a.Say("CHECK "+name, `ERR NOTHELD lock=`+name+` : .*but under x,,b,ä.*`)
	}
	b.Say("TRY b,other", `ERR HELD lock=b,other blocked=b ttl=.*`)
	b.Say("TRY other", granted5) // the refused LOCK left nothing there
	a.Say("LOCK b,c", `ERR ALREADY lock=b,c : .*`)
	a.Say("UNLOCK b,x%2C,ä", `ERR NOTHELD .*`)
	a.Say("CHECK x%2C,b,ä", granted(`x%2C,b,ä`))
	a.Say("EXTEND x%2C,b,ä ttl=30s", granted(`x%2C,b,ä`))
	a.Say("EXTEND lease="+lease, granted(`x%2C,b,ä`))
	a.Say("LOCK x%2C,b,ä", `ERR ALREADY .*`)
	a.Say("LOCK x%2C,b,ä reentrant=yes", granted(`x%2C,b,ä`)+` count=2`)
	a.Say("UNLOCK x%2C,b,ä", `OK lock=x%2C,b,ä count=1`)
	b.Say("LIST", `- lock=other .*`)
	b.Want(`- lock=x%2C,b,ä state=held mode=exclusive .*`)
	b.Want(`OK n=2`)
	a.Say("UNLOCK x%2C,b,ä", `OK lock=x%2C,b,ä`)
	b.Say("TRY b,x%2C", granted(`b,x%2C`))
}

// A LOCK of several names waits for all of them, of any holder. Two LOCKs of the same names in
// another order do not block each other.
func TestSeveralNamesWait(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	a, b, ab, ba, look := d.dial(), d.dial(), d.dial(), d.dial(), d.dial()
	a.Say("LOCK a", granted5)
	b.Say("LOCK b mode=shared", granted5)
	ab.sendWaiting(look, "LOCK a,b", 1)
	ba.sendWaiting(look, "LOCK b,a", 2)
	a.Say("UNLOCK a", `OK lock=a`)
	look.Say("TRY a", `ERR HELD .*`)
	b.Say("UNLOCK b", `OK lock=b`)
	ab.Want(granted(`a,b`))
	ab.Say("UNLOCK a,b", `OK lock=a,b`)
	ba.Want(granted(`b,a`))
}

// No two clients hold the same name at once.
func TestSeveralNamesOfManyClients(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	var inside [3]atomic.Int32
	var wg sync.WaitGroup
	for i, names := range []string{"0,1", "1,2", "2,0", "2,1,0", "1", "0"} {
		w := d.dial()
		wg.Go(func() {
			for range 20 {
				w.Say("LOCK "+names, granted(names))
				for name := range strings.SplitSeq(names, ",") {
					if inside[name[0]-'0'].Add(1) != 1 {
						t.Errorf("client %d has %s beside another one", i, name)
					}
				}
				for name := range strings.SplitSeq(names, ",") {
					inside[name[0]-'0'].Add(-1)
				}
				w.Say("UNLOCK "+names, `OK lock=`+names)
			}
		})
	}
	wg.Wait()
}

// kinds are LOCKs of every kind, each with its grant.
var kinds = []struct{ names, options, grant string }{
	{"a", "", granted5},
	{"a", " mode=shared", granted5},
	{"a", " slots=3", grantedSlot},
	{"a,b", "", granted5},
	{"a,b", " mode=shared", granted5},
}

// A lease of any kind ends with its client, and a waiter gets the lock.
func TestEveryKindEnds(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.names+kind.options, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startSims(t, 3, longNodeTimeout)
				w, next := d.dial(), d.dial()
				w.Say("LOCK "+kind.names+kind.options, kind.grant)
				next.Say("TRY a", `ERR HELD .*`)
				next.sendWaiting(d.dial(), "LOCK a,c", 1)
				w.Conn.Close()
				next.Want(granted(`a,c`))
				next.Conn.Close()
				d.awaitNoKeys()
			})
		})
	}
}

// A lease of any kind is lost before its deadline, and finally. No client of this host gets the
// lock until then.
func TestEveryKindIsLost(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, kind := range kinds {
		t.Run(kind.names+kind.options, func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t, 3, func(cfg *config.Config) { cfg.Quorum.MaxTTL, cfg.Lease.TTL = 2*time.Second, 2*time.Second })
			w, next := d.dial(), d.dial()
			w.Say("LOCK "+kind.names+kind.options, kind.grant)
			next.sendWaiting(d.dial(), "LOCK a", 1)
			for _, server := range d.Nodes.Servers {
				if err := server.FlushAll(); err != nil {
					t.Fatal(err)
				}
			}
			deadline := duration(t, w.Say("CHECK "+kind.names, kind.grant)[2])
			w.Want(`LOST lock=` + kind.names + ` lease=\S+ reason=quorum : .*`)
			w.Say("CHECK "+kind.names, `ERR LOST lock=`+kind.names+` reason=\w+ : .*`)
			w.Say("UNLOCK "+kind.names, `ERR LOST lock=`+kind.names+` reason=\w+ : .*`)
			next.Want(granted5)
			if now := redlock.BootTime(); now < deadline {
				t.Errorf("granted to another client at %v, before the deadline %v", now, deadline)
			}
		})
	}
}

// All holders get LOST, and the waiter gets the lock at once.
func TestEveryKindIsForced(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.names+kind.options, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startSims(t, 3, longNodeTimeout)
				var holders []*wire
				for range 3 {
					if w := d.dial(); len(holders) == 0 || kind.options != "" {
						w.Say("LOCK "+kind.names+kind.options+" ttl=30s", kind.grant)
						holders = append(holders, w)
					}
				}
				next, admin := d.dial(), d.dial()
				next.sendWaiting(admin, "LOCK a", 1)
				also, rest := "", strings.TrimPrefix(kind.names, "a,")
				if rest != kind.names {
					also = ` also=` + rest + `\b`
				}
				admin.Say("FORCE a", fmt.Sprintf(`OK lock=a n=%d%s.*: .*`, len(holders), also))
				next.Want(granted5)
				for i, w := range holders {
					w.Want(`LOST lock=` + kind.names + ` lease=\S+ reason=forced : .*`)
					if also != "" {
						admin.wantStillTaken(rest, kind.names, len(holders)-i)
					}
					w.Say("UNLOCK "+kind.names, `ERR LOST .*`)
				}
				if also != "" { // its other name is free, long before the ttl has passed
					admin.Until("TRY "+rest, `^OK`)
				}
				admin.Say("FORCE c", `OK lock=c n=0 : .*`)
			})
		})
	}
}

// wantStillTaken checks that n leases lost by FORCE of a are shown as lost, and that their other name
// is still taken.
func (w *wire) wantStillTaken(name, list string, n int) {
	w.T.Helper()
	w.Until("LIST", fmt.Sprintf(`^- lock=a state=held .*\n(- lock=%s state=lost .* ttl=\d+\n){%d}OK`, list, n))
	w.Until("WHO "+name, fmt.Sprintf(`^(- lock=%s .* : it was lost \(forced\).*\n){%d}OK n=%d\n`, name, n, n))
	w.Say("TRY "+name, `ERR HELD lock=`+name+` .*`)
}

// If the holder is gone, the other names of a lease that was forced away are released too.
func TestForceThenDisconnectReleasesOtherNames(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, admin := d.dial(), d.dial()
	w.Say("LOCK a,b,c ttl=30s", granted(`a,b,c`)) // longer than Until waits
	admin.Say("FORCE b", `OK lock=b n=1 also=a,c held=.*`)
	admin.Say("TRY a", `ERR HELD .*`)
	w.Conn.Close()
	admin.Until("TRY a,b,c", `^OK`)
	admin.Say("LIST", `- lock=a,b,c state=held .*`)
	admin.Want(`OK n=1`)
}

// A lease of any kind is found by its names and by its id, and can be extended.
func TestEveryKindIsFoundByNameAndLease(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.names+kind.options, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startSims(t, 3, longNodeTimeout)
				w, other := d.dial(), d.dial()
				lease := w.Say("LOCK "+kind.names+kind.options+" ttl=2s id=x", kind.grant)[0]
				w.Say("LOCK "+kind.names+kind.options+" id=x", kind.grant+` again=yes`)
				w.Say("LOCK "+kind.names+kind.options, `ERR ALREADY .*`)
				w.Say("LOCK "+kind.names+kind.options+" reentrant=yes", kind.grant+` count=2`)
				if kind.options != "" {
					w.Say("LOCK "+kind.names+" reentrant=yes", `ERR ALREADY .*another mode.*`)
				}
				if ttl := duration(t, other.Say("EXTEND lease="+lease+" ttl=20s", kind.grant+` count=2`)[1]); ttl < 15*time.Second {
					t.Errorf("EXTEND ttl=20s: %v are left", ttl)
				}
				w.Say("EXTEND "+kind.names, kind.grant+` count=2`)
				w.Say("UNLOCK "+kind.names, `OK lock=`+kind.names+` count=1`)
				other.Say("UNLOCK lease="+lease, `OK lock=`+kind.names)
				w.Say("CHECK "+kind.names, `ERR NOTHELD .*`)
				other.Say("TRY a,b", granted(`a,b`))
			})
		})
	}
}

// slots=1 means the same as no slots=, and is allowed with several names.
func TestOneSlotIsExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w, other := d.dial(), d.dial()
		w.Say("LOCK a slots=1 reentrant=yes", counted(1))
		w.Say("LOCK a reentrant=yes", counted(2))
		other.Say("TRY a", `ERR HELD lock=a .*`)
		other.Say("LOCK b,c slots=1", granted(`b,c`))
		w.Say("UNLOCK a", `OK lock=a count=1`)
		w.Say("UNLOCK a", `OK lock=a`)
		other.Say("TRY a slots=1", granted5)
	})
}

// Embedded nodes support every kind. A waiter asks them repeatedly.
func TestDevKinds(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDev(t)
	w, other := d.dial(), d.dial()
	w.Until("STATUS", `spare=2\b`)
	for _, kind := range kinds {
		lease := w.Say("LOCK "+kind.names+kind.options+" ttl=9s", kind.grant)[0]
		other.Say("TRY a", `ERR HELD .*`)
		other.Say("WHO a", `- lock=a mode=\w+ .* nodes=5`)
		other.Want(`OK n=1`)
		w.Say("EXTEND lease="+lease+" ttl=10s", kind.grant)
		other.sendWaiting(w, "LOCK a,c", 1)
		w.Say("UNLOCK "+kind.names, `OK lock=`+kind.names)
		other.Want(granted(`a,c`))
		other.Say("UNLOCK a,c", `OK lock=a,c`)
		w.Say("LOCK "+kind.names+kind.options+" ttl=600ms hold=ttl", kind.grant)
		w.Want(`LOST lock=` + kind.names + ` .* reason=expired .*`)
		other.Say("LOCK a wait=10s", granted5)
		w.Say("FORCE a", `OK lock=a n=1 .*`)
		other.Want(`LOST .*`)
	}
	other.Send("STATUS")
	other.Want(`- node=a address=embedded state=ready wakeups=pubsub .*`)
}
