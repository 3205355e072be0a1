package session

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// The leases of a connection are released as soon as it closes, with and without waiters.
func TestConnectionEndsLeaseEnds(t *testing.T) {
	d := startDaemon(t, 5, nil)
	a, b := d.dial(), d.dial()
	a.Say("LOCK a", granted5)
	a.Say("LOCK b", granted5)
	b.Send("LOCK a")
	d.dial().Until("LIST", `state=waiting`)
	a.Conn.Close()
	b.Want(granted5)
	b.Conn.Close()
	d.AwaitNoKeys()
}

// The lease outlives its connection, and ends with its ttl.
func TestHoldTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		a, b := d.dial(), d.dial()
		got := a.Say("LOCK a hold=ttl ttl=700ms", granted5)
		deadline := duration(t, got[2])
		a.Conn.Close()
		b.Say("TRY a", `ERR HELD .*`)
		b.Say("CHECK lease="+got[0], granted5)
		b.Say("LOCK a", granted5)
		if now := d.now(); now < deadline-700*time.Millisecond/5 {
			t.Errorf("granted to another client at %v, before the first lease expired at %v", now, deadline)
		}
	})
}

// A lease with hold=ttl that is lost before its ttl ends is logged as a warning.
func TestHoldTTLIsLost(t *testing.T) {
	var log daemontest.Log
	d := startDaemon(t, 3, nil).anotherWithLog(logging.New(&log, hclog.Info, logging.Text))
	w := d.dial()
	w.Say("LOCK a hold=ttl ttl=20s", granted5)
	d.dial().Say("FORCE a", `OK lock=a .*`)
	w.Want(`LOST lock=a .* reason=forced : .*`)
	log.Await(t, "[WARN]  lease lost: lock=a reason=forced ")
}

// If the connection has ended, no client gets LOST, and the daemon forgets the lease. Otherwise
// each client would leave a record.
func TestHoldTTLIsForgottenWithoutItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w, look := d.dial(), d.dial()
		lease := w.Say("LOCK a hold=ttl ttl=300ms", granted5)[0]
		w.Conn.Close()
		look.Until("STATUS", `connections=1\b`)
		look.Until("CHECK lease="+lease, `^ERR NOTHELD `)
	})
}

// LOST reason=expired comes before the deadline.
func TestHoldTTLGetsLostBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w := d.dial()
		got := w.Say("LOCK a hold=ttl ttl=1s", granted5)
		w.Want(`LOST lock=a lease=` + got[0] + ` reason=expired : .*`)
		if now, deadline := d.now(), duration(t, got[2]); now >= deadline {
			t.Errorf("LOST came at %v, after the deadline %v", now, deadline)
		}
		w.Say("CHECK a", `ERR LOST lock=a reason=expired : .*`)
		w.Say("UNLOCK a", `ERR LOST lock=a reason=expired : .*`)
		w.Say("EXTEND a", `ERR LOST lock=a reason=expired : .*`)
		w.Say("LOCK a", granted5) // a new LOCK replaces the lost lease
		w.Say("CHECK a", granted5)
	})
}

// One LOCK can take several names at once whose leases were lost one by one.
func TestLockSeveralLostNames(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	w, admin := d.dial(), d.dial()
	for _, name := range []string{"a", "b", "c"} {
		w.Say("LOCK "+name+" ttl=20s", granted5)
		admin.Say("FORCE "+name, `OK .*`)
		w.Want(`LOST lock=` + name + ` .*`)
	}
	w.Say("LOCK a,b,c", granted(`a,b,c`))
}

// A lease is not extended past max=. LOST comes before that.
func TestMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		w := d.dial()
		before := d.now()
		w.Say("LOCK a ttl=1s max=1500ms", granted5)
		granted := d.now()
		w.Want(`LOST lock=a lease=\S+ reason=max : .*`)
		lost := d.now()
		if lost-before != 1300*time.Millisecond || lost-granted != 1300*time.Millisecond {
			t.Errorf("LOST %v after the request, %v after its answer: want 200ms before the 1500ms of max", lost-before, lost-granted)
		}
	})
}

// The lock stays taken for linger= after its client died. An UNLOCK releases it at once.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		a, b := d.dial(), d.dial()
		a.Say("LOCK a linger=300ms", granted5)
		a.Say("LOCK b linger=10s", granted5)
		a.Say("UNLOCK b", `OK lock=b`)
		b.Say("TRY b", granted5)
		closed := d.now()
		a.Conn.Close()
		b.Say("LOCK a", granted5)
		if lingered := d.now() - closed; lingered < 300*time.Millisecond {
			t.Errorf("released %v after its client died, want 300ms", lingered)
		}
	})
}

// The clients hold the lock one at a time, in the order of arrival.
func TestHundredClientsOneName(t *testing.T) {
	const clients = 100
	d := startDaemon(t, 5, nil)
	first, look := d.dial(), d.dial()
	first.Say("LOCK a", granted5)
	var wires []*wire
	for i := range clients {
		w := d.dial()
		w.Send("LOCK a note=%d", i)
		look.Until("STATUS", fmt.Sprintf(`waiters=%d\b`, i+1))
		wires = append(wires, w)
	}
	var inside atomic.Int32
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i, w := range wires {
		wg.Go(func() {
			w.Want(granted5)
			if inside.Add(1) != 1 {
				t.Errorf("client %d has the lock beside another one", i)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			w.Say("CHECK a", `OK lock=a lease=.*`) // a round trip, in which another client could enter
			inside.Add(-1)
			w.Say("UNLOCK a", `OK lock=a`)
		})
	}
	first.Say("UNLOCK a", `OK lock=a`)
	wg.Wait()
	for i, client := range order {
		if i != client {
			t.Fatalf("the order of grants is %v: want the order of arrival", order)
		}
	}
}

// A waiter leaves the queue when its connection or its input ends, by CANCEL, and after its wait=.
func TestWaiterLeaves(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, look := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	t.Run("closed", func(t *testing.T) {
		w := d.dial()
		w.Send("LOCK a")
		look.Until("LIST", `state=waiting`)
		w.Conn.Close()
		look.Until("LIST", `^[^\n]*state=held[^\n]*\nOK n=1\n$`)
	})
	t.Run("input ended", func(t *testing.T) {
		w := d.dial()
		w.Send("LOCK a\nPING")
		look.Until("LIST", `state=waiting`)
		w.EndInput()
		w.Want(`ERR CANCELLED lock=a : .*input ended.*`)
		w.Want(`OK`)
		w.Ends()
	})
	t.Run("cancelled", func(t *testing.T) {
		w := d.dial()
		w.Send("@x LOCK a")
		look.Until("LIST", `state=waiting`)
		w.Send("@y CANCEL x")
		got := map[string]bool{w.Line()[:2]: true, w.Line()[:2]: true}
		if !got["@x"] || !got["@y"] {
			t.Errorf("answers to %v, want @x and @y", got)
		}
	})
	t.Run("wait ended", func(t *testing.T) {
		w := d.dial()
		start := redlock.BootTime()
		w.Say("LOCK a wait=300ms", `ERR HELD lock=a ttl=\d+ host=\S+ .*`)
		if waited := redlock.BootTime() - start; waited < 300*time.Millisecond {
			t.Errorf("HELD after %v, want 300ms", waited)
		}
	})
	look.Until("LIST", `^[^\n]*state=held[^\n]*\nOK n=1\n$`)
}

// All requests of printf 'LOCK…\nUNLOCK…\n' | nc -N are answered.
func TestInputThatEndsAtOnce(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w := d.dial()
	w.Send("LOCK a\nCHECK a\nUNLOCK a\nLOCK a")
	w.EndInput()
	w.Want(granted5)
	w.Want(granted5)
	w.Want(`OK lock=a`)
	w.Want(granted5)
	w.Ends()
	d.AwaitNoKeys()
}

// The end of the input ends a LOCK's wait, and the answer says so. A TRY does not wait, and gets
// HELD.
func TestInputEndsWhileAnotherHostHolds(t *testing.T) {
	d := startDaemon(t, 3, nil)
	d.another().dial().Say("LOCK a", granted5)
	w, look := d.dial(), d.dial()
	w.sendWaiting(look, "@1 LOCK a wait=1h", 1)
	w.Send("@2 TRY a owner=2")
	w.Want(`@2 ERR HELD lock=a .*`)
	w.EndInput()
	w.Want(`@1 ERR CANCELLED lock=a : .*the client's input ended while it waited`)
	for range 20 { // the answer may come before or after the end of the input
		once := d.dial()
		once.Send("TRY a")
		once.EndInput()
		once.Want(`ERR HELD lock=a .*`)
	}
}

// A LOCK with hold=ttl continues to wait after the end of the input, as long as the client reads.
func TestHoldTTLWaitsAfterInputEnd(t *testing.T) {
	d := startDaemon(t, 3, nil)
	holder, look := d.dial(), d.dial()
	holder.Say("LOCK a", granted5)
	w := d.dial()
	w.Send("LOCK a hold=ttl")
	look.Until("LIST", `state=waiting`)
	w.EndInput()
	gone := d.dial()
	gone.Send("LOCK a hold=ttl note=gone")
	look.Until("LIST", `note=gone`)
	gone.Conn.Close()
	look.Until("STATUS", `waiters=1\b`)
	holder.Say("UNLOCK a", `OK lock=a`)
	w.Want(granted5)
	w.Ends()
}

// There are tens of thousands of leases. 352 bytes is a size class of Go's allocator; the next one
// is 384.
func TestHeldLeaseIsSmall(t *testing.T) {
	if size := reflect.TypeFor[heldLease]().Size(); size > 352 {
		t.Errorf("a heldLease takes %d bytes: put rarely used fields behind a pointer", size)
	}
}
