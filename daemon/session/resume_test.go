package session

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// RESUME keeps a reentrant lease's count and shows it. Otherwise the UNLOCK of an inner part would
// release the lock that an outer one still needs.
func TestResumeKeepsTheCount(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next, other := d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a reentrant=yes", counted(1))[0]
	w.Say("RESUME a lease="+lease, granted5)
	w.Say("LOCK a reentrant=yes", counted(2))
	w.Say("RESUME a lease="+lease, counted(2)) // the lease is there already
	next.Say("RESUME a lease="+lease, counted(2))
	next.Say("LOCK a reentrant=yes", counted(3))
	next.Say("UNLOCK a", `OK lock=a count=2`)
	next.Say("UNLOCK a", `OK lock=a count=1`)
	other.Say("TRY a", `ERR HELD .*`)
	next.Say("UNLOCK a", `OK lock=a`)
	other.Say("TRY a", granted5)
}

// RESUME keeps the count even if the connection has ended and the lease continues. Without RESUME,
// one UNLOCK releases the lease, because no client counts any more.
func TestResumeKeepsTheCountOfAnEndedConnection(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next := d.dial(), d.dial()
	leases := map[string]string{}
	for _, name := range []string{"a", "b"} {
		leases[name] = w.Say("LOCK "+name+" reentrant=yes hold=ttl ttl=20s", counted(1))[0]
		w.Say("LOCK "+name+" reentrant=yes", counted(2))
	}
	w.Conn.Close()
	next.Until("STATUS", `connections=1\b`)
	next.Say("RESUME a lease="+leases["a"], counted(2))
	next.Say("UNLOCK a", `OK lock=a count=1`)
	next.Say("UNLOCK a", `OK lock=a`)
	next.Say("UNLOCK lease="+leases["b"], `OK lock=b`)
}

// A client that resumes a lease during linger= keeps it after linger= has passed.
func TestResumeEndsLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		w, next, look := d.dial(), d.dial(), d.dial()
		lease := w.Say("LOCK a ttl=20s linger=2s", granted5)[0]
		w.Conn.Close()
		look.Until("STATUS", `connections=2\b`)
		next.Say("RESUME a lease="+lease, granted5)
		look.Say("LOCK clock hold=ttl ttl=2500ms guard=1", granted5)
		look.Want(`LOST lock=clock .*`)
		look.Say("TRY a", `ERR HELD .*`)
		next.Say("CHECK a", granted5)
		next.Say("UNLOCK a", `OK lock=a`)
	})
}

// If a client resumes a lease and disconnects again, linger= starts again in full.
func TestLingerAfterResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		w, next, look := d.dial(), d.dial(), d.dial()
		lease := w.Say("LOCK a ttl=20s linger=4s", granted5)[0]
		look.Say("LOCK clock hold=ttl ttl=5s guard=1", granted5)
		w.Conn.Close()
		look.Until("STATUS", `connections=2\b`)
		next.Say("RESUME a lease="+lease, granted5)
		look.Say("LOCK half hold=ttl ttl=2500ms guard=1", granted5)
		look.Want(`LOST lock=half .*`)
		next.Conn.Close()
		look.Want(`LOST lock=clock .*`) // the first linger= ended a second ago
		look.Say("TRY a", `ERR HELD .*`)
		look.Say("LOCK a wait=4s", granted5)
	})
}

// After a RESUME, waiters wait for the new holder, so it cannot wait for them. The previous holder
// can.
func TestResumeMovesWaiters(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next, other, look := d.dial(), d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a", granted5)[0]
	other.Say("LOCK b", granted5)
	other.sendWaiting(look, "LOCK a", 1)
	next.Say("RESUME a lease="+lease, granted5)
	next.Say("LOCK b", `ERR DEADLOCK lock=b : .*`)
	w.sendWaiting(look, "LOCK b", 2)
	next.Say("UNLOCK a", `OK lock=a`)
	other.Want(granted5)
	other.Say("UNLOCK b", `OK lock=b`)
	w.Want(granted5)
}

// A RESUME does not move a lease that is being released.
func TestNoResumeDuringRelease(t *testing.T) {
	d := &Host{table: locktable.NewTable()}
	s, before := newTestSession(d), newTestSession(d)
	h := newTestLease(before, "a")
	h.SetHolder(&before.client, nil)
	h.Life.State = locktable.Held
	if !change(h, locktable.ClientIsGone).Has(locktable.BeginRelease) {
		t.Fatal("the lease cannot be released")
	}
	if err := (&resumeWork{s: s, h: h}).take(); !errors.Is(err, errNoLease) {
		t.Errorf("RESUME: %v, want %v", err, errNoLease)
	}
	if h.Reporter() != nil || h.Holder() != &before.client || s.client.HoldsLeases() {
		t.Error("the lease has moved to the connection")
	}
}

// A connection that has ended meanwhile does not get the lease: nothing would release it.
func TestNoResumeOnEndedConnection(t *testing.T) {
	d := &Host{table: locktable.NewTable()}
	s, w := newTestSession(d), newTestSession(d)
	h := newTestLease(w, "a")
	d.table.Name(&h.Lease)
	d.table.Disconnect(&s.client)
	if err := (&resumeWork{s: s, h: h}).take(); !errors.Is(err, server.ErrGone) {
		t.Errorf("RESUME: %v, want %v", err, server.ErrGone)
	}
	if h.Reporter() != &w.client || w.client.Find(0, "", "a") != &h.Lease {
		t.Error("the lease has left its connection")
	}
}

// A process's lease is known to one connection only, and to none while it is being released.
func TestResumeOfAProcessLeavesNothing(t *testing.T) {
	d := &Host{table: locktable.NewTable()}
	w, next := newTestSession(d), newTestSession(d)
	h := newTestLease(w, "a")
	h.SetHolder(&newHeldProcess(1, 0, 0).client, &w.client)
	h.Life.State = locktable.Held
	d.table.Name(&h.Lease)
	if err := (&resumeWork{s: next, h: h}).take(); err != nil || w.client.HoldsLeases() || !next.client.HoldsLeases() {
		t.Errorf("%v; the previous connection has the lease: %v, the new one: %v", err, w.client.HoldsLeases(), next.client.HoldsLeases())
	}
	change(h, locktable.LastUnlock)
	d.table.Disconnect(&next.client)
	last := newTestSession(d)
	if err := (&resumeWork{s: last, h: h}).take(); !errors.Is(err, errNoLease) || last.client.HoldsLeases() {
		t.Errorf("RESUME of a lease that is being released: %v, want %v; the connection has it: %v", err, errNoLease, last.client.HoldsLeases())
	}
}

// If two clients resume a lease at once, only one connection knows it by its names, and waiters
// wait for that one.
func TestConcurrentResume(t *testing.T) {
	d := &Host{queue: locktable.New(), table: locktable.NewTable()}
	for range 3000 {
		before := newTestSession(d)
		h := newTestLease(before, "a")
		h.hold = ipc.HoldTTL
		d.table.Name(&h.Lease)
		d.table.Disconnect(&before.client)
		both := [2]*session{newTestSession(d), newTestSession(d)}
		var wg sync.WaitGroup
		for i := range both {
			wg.Go(func() {
				if err := (&resumeWork{s: both[i], h: h}).take(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if of := h.Waiter.Owner.Client; of != h.Reporter() {
			t.Fatalf("waiters wait for %p, but %p has the lease", of, h.Reporter())
		}
		for i := range both {
			if has := both[i].client.Find(0, "", "a") == &h.Lease; has != (h.Reporter() == &both[i].client) {
				t.Fatalf("connection %d finds the lease: %v", i, has)
			}
		}
	}
}

// A repeated LOCK that is refused does not release a lease that another connection has resumed.
func TestRefusedRepeatKeepsResumedLease(t *testing.T) {
	s, other := newTestSession(&Host{table: locktable.NewTable()}), newTestSession(nil)
	h := newTestLease(other, "a")
	h.Life.State = locktable.Held
	if (&resumeWork{s: s, h: h}).undo(); h.Life.State != locktable.Held {
		t.Error("the LOCK no longer counts")
	}
}

// RESUME answers OK only after a quorum has confirmed the lease.
func TestResumeWithoutQuorum(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next := d.dial(), d.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	for _, server := range d.Nodes.Servers[:2] {
		server.Kill()
	}
	next.Say("RESUME a lease="+lease, `ERR NOQUORUM lock=a .*`)
}

// An owner has at most one lease or LOCK of a name on a connection. A lease is not resumed if it
// would be the second one, unless the first is lost.
func TestResumeOfTakenName(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next, look := d.dial(), d.dial(), d.dial()
	next.Say("LOCK a ttl=20s", granted5)
	look.Say("FORCE a", `OK .*`)
	next.Want(`LOST lock=a .*`)
	lease := w.Say("LOCK a ttl=20s wait=5s", granted5)[0]
	next.Send("@1 LOCK a")
	look.Until("STATUS", `waiters=1\b`)
	next.Say("@2 RESUME a lease="+lease, `@2 ERR ALREADY lock=a .*`)
	next.Send("@3 CANCEL 1")
	next.Want(`@[13] .*`)
	next.Want(`@[13] .*`)
	next.Say("RESUME a lease="+lease, granted5)
	next.Say("CHECK a", granted5)
}

// A second lease of a reader is not resumed on a connection either, although both could be held:
// the name would mean only one of them.
func TestResumeBesideAnotherReader(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next := d.dial(), d.dial()
	own := next.Say("LOCK a mode=shared ttl=20s", granted5)[0]
	lease := w.Say("LOCK a mode=shared ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, `ERR ALREADY lock=a .*`)
	if got := next.Say("CHECK a", granted5)[0]; got != own {
		t.Errorf("the connection finds the lease %s, want %s", got, own)
	}
	w.Say("UNLOCK a", `OK lock=a`)
}
