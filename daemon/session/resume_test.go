package session

import (
	"errors"
	"sync"
	"testing"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// Who counts on a lease does so after RESUME as before, and is told so: the first
// UNLOCK of an inner part must not release under an outer one.
func TestResumeKeepsTheCount(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next, other := d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a reentrant=yes", counted(1))[0]
	w.Say("RESUME a lease="+lease, granted5)
	w.Say("LOCK a reentrant=yes", counted(2))
	w.Say("RESUME a lease="+lease, counted(2)) // where it is already
	next.Say("RESUME a lease="+lease, counted(2))
	next.Say("LOCK a reentrant=yes", counted(3))
	next.Say("UNLOCK a", `OK lock=a count=2`)
	next.Say("UNLOCK a", `OK lock=a count=1`)
	other.Say("TRY a", `ERR HELD .*`)
	next.Say("UNLOCK a", `OK lock=a`)
	other.Say("TRY a", granted5)
}

// Also where the connection has ended, but the lease has not. Without RESUME one UNLOCK
// is enough: nobody counts any more.
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

// Who comes back while its lock lingers keeps it when that time is over, as long as it
// is there.
func TestResumeEndsLinger(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, patientNodes)
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
}

// Who came back, and is gone again, has all of linger= once more.
func TestLingerAfterResume(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startDaemon(t, 3, patientNodes)
	w, next, look := d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a ttl=20s linger=4s", granted5)[0]
	look.Say("LOCK clock hold=ttl ttl=5s guard=1", granted5)
	w.Conn.Close()
	look.Until("STATUS", `connections=2\b`)
	next.Say("RESUME a lease="+lease, granted5)
	look.Say("LOCK half hold=ttl ttl=2500ms guard=1", granted5)
	look.Want(`LOST lock=half .*`)
	next.Conn.Close()
	look.Want(`LOST lock=clock .*`) // linger= of the first one is over since a second
	look.Say("TRY a", `ERR HELD .*`)
	look.Say("LOCK a wait=4s", granted5)
}

// Those who wait for a lease wait for whoever has it now: he cannot wait for them. Who had
// it before can.
func TestResumeTakesTheWaitersAlong(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next, other, look := d.dial(), d.dial(), d.dial(), d.dial()
	lease := w.Say("LOCK a", granted5)[0]
	other.Say("LOCK b", granted5)
	other.waits(look, "LOCK a", 1)
	next.Say("RESUME a lease="+lease, granted5)
	next.Say("LOCK b", `ERR DEADLOCK lock=b : .*`)
	w.waits(look, "LOCK b", 2)
	next.Say("UNLOCK a", `OK lock=a`)
	other.Want(granted5)
	other.Say("UNLOCK b", `OK lock=b`)
	w.Want(granted5)
}

// A lease that is being given back is nobody's any more: whoever resumes it just then
// leaves it where it is.
func TestNobodyResumesWhatIsGivenBack(t *testing.T) {
	s, index := &session{}, &leaseIndex{}
	h := &heldLease{index: index, life: leaseLife{state: held}}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	if !h.onClientGone().has(beginRelease) {
		t.Fatal("it cannot be given back")
	}
	if err := (&resumeWork{s: s, h: h}).take(); !errors.Is(err, errNoLease) {
		t.Errorf("RESUME: %v, want %v", err, errNoLease)
	}
	if h.attached() != nil || h.currentIndex() != index || len(s.leases.all()) != 0 {
		t.Error("it goes by the connection")
	}
}

// Nor does a connection that has come to its end meanwhile get a lease: nobody would give it
// back.
func TestNobodyResumesOnAConnectionThatHasEnded(t *testing.T) {
	s, w := &session{}, &session{}
	h := &heldLease{index: &w.leases, session: w}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	h.index.add(h)
	s.leases.close()
	if err := (&resumeWork{s: s, h: h}).take(); !errors.Is(err, server.ErrGone) {
		t.Errorf("RESUME: %v, want %v", err, server.ErrGone)
	}
	if h.attached() != w || w.leases.get(h.indexKey("a")) != h {
		t.Error("the connection that has it does not have it any more")
	}
}

// The end of the connection before takes nothing from the one that has resumed a lease, also
// in the moment in which it goes by its names on both.
func TestEndOfTheConnectionBefore(t *testing.T) {
	w, next := &session{}, &session{}
	h := &heldLease{index: &w.leases, session: w}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	h.index.add(h)
	if _, _, ok := h.attach(next, &next.leases); !ok || h.detach(w) || h.attached() != next {
		t.Error("it is nobody's, and would be given back")
	}
}

// A lease that goes by a process is known to one connection, and to none if it is being
// given back.
func TestResumeOfAProcessLeavesNothing(t *testing.T) {
	w, next := &session{}, &session{}
	h := &heldLease{index: &leaseIndex{}, process: &heldProcess{}, session: w, life: leaseLife{state: held}}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	w.addProcessLease(h)
	if err := (&resumeWork{s: next, h: h}).take(); err != nil || len(w.leasesOfProcesses()) != 0 || len(next.leasesOfProcesses()) != 1 {
		t.Errorf("%v; the one before knows %d, this one %d", err, len(w.leasesOfProcesses()), len(next.leasesOfProcesses()))
	}
	next.removeLease(h)
	h.on(lastUnlock)
	if err := (&resumeWork{s: next, h: h}).take(); !errors.Is(err, errNoLease) || len(next.leasesOfProcesses()) != 0 {
		t.Errorf("RESUME of what is given back: %v, want %v; it knows %d", err, errNoLease, len(next.leasesOfProcesses()))
	}
}

// A lease that two resume at once goes by its names on one connection, which is whom those
// who wait for it wait for.
func TestTwoResumeAtOnce(t *testing.T) {
	d := &Host{Queue: waitqueue.New()}
	for range 3000 {
		h := &heldLease{index: &leaseIndex{}, hold: ipc.HoldTTL}
		h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
		h.index.add(h)
		var both [2]session
		var wg sync.WaitGroup
		for i := range both {
			both[i].host = d
			wg.Go(func() {
				if err := (&resumeWork{s: &both[i], h: h}).take(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if of := h.waiter.Owner.Client; of != h.attached() {
			t.Fatalf("who waits for it waits for %p, and %p has it", of, h.attached())
		}
		for i := range both {
			if has := both[i].leases.get(h.indexKey("a")) == h; has != (h.attached() == &both[i]) {
				t.Fatalf("connection %d finds it: %v", i, has)
			}
		}
	}
}

// A repeated LOCK that is refused gives nothing back that another connection has resumed.
func TestRefusedRepeatLeavesWhatIsResumed(t *testing.T) {
	s, other := &session{}, &session{}
	h := &heldLease{session: other, life: leaseLife{state: held}}
	if (&resumeWork{s: s, h: h}).undo(); h.life.state != held {
		t.Error("it counts no more")
	}
}

// RESUME says OK when a quorum has confirmed the lease, and not before.
func TestResumeWithoutQuorum(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next := d.dial(), d.dial()
	lease := w.Say("LOCK a ttl=20s", granted5)[0]
	for _, server := range d.Nodes.Servers[:2] {
		server.Kill()
	}
	next.Say("RESUME a lease="+lease, `ERR NOQUORUM lock=a .*`)
}

// A name goes by one lease, or LOCK, of an owner: a lease is not resumed where it would be
// the second, but for one that is lost.
func TestResumeWhereTheNameIsTaken(t *testing.T) {
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

// So it is where both can be held, as by readers: the name would go by one of them only.
func TestResumeBesideAnotherReader(t *testing.T) {
	d := startDaemon(t, 3, nil)
	w, next := d.dial(), d.dial()
	own := next.Say("LOCK a mode=shared ttl=20s", granted5)[0]
	lease := w.Say("LOCK a mode=shared ttl=20s", granted5)[0]
	next.Say("RESUME a lease="+lease, `ERR ALREADY lock=a .*`)
	if got := next.Say("CHECK a", granted5)[0]; got != own {
		t.Errorf("a is the lease %s there, want %s", got, own)
	}
	w.Say("UNLOCK a", `OK lock=a`)
}
