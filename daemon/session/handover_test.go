package session

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/devnodes"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// A lock goes from one client to the next in one step, after an UNLOCK and after the death of a
// client. Each client gets its own fencing token.
func TestHandOver(t *testing.T) {
	for _, names := range []string{"a", "a,b"} {
		t.Run(names, func(t *testing.T) {
			d := startDaemon(t, 3, longNodeTimeout)
			a, b, c, look := d.dial(), d.dial(), d.dial(), d.dial()
			const grant = `OK lock=\S+ lease=\S+ fence=(\d+) ttl=\d+ deadline=\d+ guard=\d+`
			first := a.Say("LOCK "+names, grant)[0]
			b.sendWaiting(look, "LOCK "+names, 1)
			c.sendWaiting(look, "LOCK "+names+" hold=ttl", 2)
			a.Say("UNLOCK "+names, `OK lock=`+names)
			second := b.Want(grant)[0]
			b.Conn.Close()
			third := c.Want(grant)[0]
			look.Until("STATUS", `grants=3\b.*handovers=2\b`)
			if !(first < second && second < third) { // 16 digits each
				t.Errorf("fencing tokens %s, %s, %s: want increasing ones", first, second, third)
			}
			c.Say("UNLOCK "+names, `OK lock=`+names)
			look.Until("STATUS", `handovers=2\b`)
			d.AwaitNoKeys()
		})
	}
}

// Waiters leave in every way and at every moment. They leave nothing on the nodes, and the lock
// goes on to the next waiter.
func TestHandOverToWaiterThatLeaves(t *testing.T) {
	const clients, rounds = 8, 60
	d := startDaemon(t, 3, longNodeTimeout)
	var inside atomic.Int32
	var grants atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			w := d.dial()
			for range rounds {
				if w == nil {
					w = d.dial()
				}
				w = cancelOrHold(w, random, &inside, &grants)
			}
		})
	}
	wg.Wait()
	if grants.Load() < rounds/4 {
		t.Errorf("only %d grants: the test proves too little", grants.Load())
	}
	look := d.dial()
	look.Until("STATUS", ` (handovers|passes)=[1-9]`) // timing decides which of the two
	look.Until("STATUS", `waiters=0\b`)
	look.Say("LOCK a wait=5s", granted5) // less than the ttl of a lease that was left behind
	look.Say("UNLOCK a", `OK lock=a`)
	d.AwaitNoKeys()
}

// cancelOrHold requests the lock with a ttl of 25 to 30 s, so that a lease that is left behind
// lasts as long. It returns the connection, or nil if that is closed.
func cancelOrHold(w *wire, random *rand.Rand, inside *atomic.Int32, grants *atomic.Int64) *wire {
	wait, pings := 1+random.IntN(8), random.IntN(3)
	lock := fmt.Sprintf("@1 LOCK a ttl=%ds", 25+random.IntN(6)) // a ttl above the holder's needs a hand-over, others a pass
	switch random.IntN(4) {
	case 0: // CANCEL, at a random moment
		w.Send("%s%s\n@2 CANCEL 1", lock, strings.Repeat("\n@3 PING", pings))
	case 1: // the connection ends, at a random moment
		w.Send("%s%s", lock, strings.Repeat("\n@3 PING", pings))
		w.Conn.Close()
		return nil
	default:
		w.Send("%s wait=%d%s\n@2 PING", lock, wait, strings.Repeat("\n@3 PING", pings))
	}
	granted := false
	for range 2 + pings {
		if line := w.Line(); strings.HasPrefix(line, "@1 OK") {
			granted = true
			if inside.Add(1) != 1 {
				w.T.Error("two clients hold the lock")
			}
		}
	}
	if granted {
		grants.Add(1)
		inside.Add(-1)
		w.Say("UNLOCK a", `OK lock=a`)
	}
	return w
}

// The clients of one host pass a lock on among themselves without end. A client of another host
// gets it nevertheless.
func TestOtherHostsGetTheirTurn(t *testing.T) {
	for _, kind := range []struct{ name, options, other string }{
		{"a", "", ""}, {"a,b", "", ""}, {"a", " slots=2", " slots=2"}, {"a", " mode=shared", ""}, {"a", "", " mode=shared"},
	} {
		t.Run(kind.name+kind.options+" and"+kind.other, func(t *testing.T) {
			const turns = 10
			here := startDaemon(t, 3, longNodeTimeout)
			there := here.another()
			var stop atomic.Bool
			var wg sync.WaitGroup
			for range 6 {
				w := here.dial()
				wg.Go(func() {
					for !stop.Load() {
						w.Say("LOCK "+kind.name+kind.options, `OK .*`)
						w.Say("UNLOCK "+kind.name, `OK .*`)
					}
				})
			}
			defer wg.Wait()
			defer stop.Store(true)
			other := there.dial()
			for range turns {
				other.Say("LOCK "+kind.name+kind.other+" wait=15s", `OK .*`)
				other.Say("UNLOCK "+kind.name, `OK .*`)
			}
		})
	}
}

// A grant was begun for a client that has just left. The lock is free at once for the next attempt,
// whether the grant was a hand-over, or a pass because a client waited when the lock was granted.
func TestBegunGrantIsAbandoned(t *testing.T) {
	for _, passed := range []bool{false, true} {
		t.Run(fmt.Sprintf("passed=%v", passed), func(t *testing.T) { testBegunGrantIsAbandoned(t, passed) })
	}
}

func testBegunGrantIsAbandoned(t *testing.T, passed bool) {
	cfg := config.Dev()
	e, nodes, err := devnodes.Start(&cfg.Quorum)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	d, err := newTestHost(cfg, hclog.NewNullLogger(), nodes, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Nodes.Close()
	d.Nodes.Settle(t.Context())
	s := &session{host: d, inputEnded: make(chan struct{})}
	first := queueLock(t, s, "first")
	var second *lockRequest
	if passed {
		second = queueLock(t, s, "second")
	}
	err = first.acquire(t.Context())
	if first.settle(err); err != nil {
		t.Fatal(err)
	}
	if !passed {
		second = queueLock(t, s, "second")
	}
	if _, _, err := d.undoLock(first.heldLease, &server.Call{}); err != nil {
		t.Fatal(err)
	}
	if !isClosed(second.Waiter.Ready()) {
		t.Fatal("no grant was begun for the next waiter")
	}
	if n := d.Nodes.Status().Counts.HandOvers; !passed && n != 1 {
		t.Fatalf("%d hand-overs, want 1", n)
	}
	second.settle(errInputEnded)
	lease, err := d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: time.Second})
	if err != nil {
		t.Fatalf("the begun grant was not abandoned: %v", err)
	}
	lease.Release(t.Context())
}

// A waiter may time out between the moment when it was chosen for a hand-over and the attempt
// for it. Then nothing of the attempt stays in the state file.
func TestUndeliveredAttemptIsForgotten(t *testing.T) {
	d, path := journalHost(t)
	e, nodes, err := devnodes.Start(&d.Cfg.Quorum)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	journal := d.Journal
	if d, err = newTestHost(d.Cfg, hclog.NewNullLogger(), nodes, true); err != nil {
		t.Fatal(err)
	}
	d.Journal = journal
	defer d.Nodes.Close()
	d.Nodes.Settle(t.Context())
	s := &session{host: d, inputEnded: make(chan struct{})}
	first, second := queueLock(t, s, "first"), queueLock(t, s, "second")
	second.number = 2 // the first request is not recorded
	err = first.acquire(t.Context())
	if first.settle(err); err != nil {
		t.Fatal(err)
	}
	next := d.queue.ClaimNext(&first.Waiter, 0, false, 0)
	if next != &second.Waiter {
		t.Fatalf("the next waiter is %v, want the second", next)
	}
	second.settle(redlock.ErrHeld)
	d.Journal.Answered(second.number)
	if d.handOver(first.heldLease, next) == nil {
		t.Fatal("nothing was handed over")
	}
	if l := d.recorded(path).Leases[second.number]; l != nil {
		t.Errorf("the state file has %+v, want no record of an answered request", l)
	}
}

// The lock is not handed over to a client that is gone, even if its LOCK has not noticed that yet:
// it is released, and the next client gets it.
func TestNoHandOverToAClientThatIsGone(t *testing.T) {
	d := readyHost(t)
	s, gone := &session{host: d, inputEnded: make(chan struct{})}, &session{host: d, inputEnded: make(chan struct{})}
	first, second, third := queueLock(t, s, "first"), queueLock(t, gone, "second"), queueLock(t, s, "third")
	err := first.acquire(t.Context())
	if first.settle(err); err != nil {
		t.Fatal(err)
	}
	close(gone.inputEnded)
	if _, _, err := d.undoLock(first.heldLease, &server.Call{}); err != nil {
		t.Fatal(err)
	}
	if counts := d.Nodes.Status().Counts; counts.HandOvers+counts.Passes != 0 {
		t.Errorf("%+v: the lock was handed over", counts)
	}
	second.settle(errInputEnded)
	err = third.acquire(t.Context())
	if third.settle(err); err != nil {
		t.Errorf("the next waiter: %v", err)
	}
}

// queueLock returns a LOCK that was read and has joined the wait queue.
func queueLock(t *testing.T, s *session, owner string) *lockRequest {
	t.Helper()
	call := &server.Call{Request: ipc.Request{Verb: ipc.VerbLock, Names: []string{"a"}, Options: ipc.Options{Owner: owner}}}
	a, err := s.newLockRequest(call)
	if err == nil {
		_, err = s.registerRequest(a)
	}
	if err == nil {
		s.host.inQueue(&a.Waiter, func(q *locktable.Queue) { err = q.Join(&a.Waiter) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A lease that was lost and then unlocked cannot be handed over. The next waiter gets the lock at
// the deadline, and the one behind it after that.
func TestNextAfterALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, longNodeTimeout)
		w, next, behind, look := d.dial(), d.dial(), d.dial(), d.dial()
		deadline := duration(t, w.Say("LOCK a hold=ttl ttl=2s", granted5)[2])
		next.sendWaiting(look, "LOCK a", 1)
		behind.sendWaiting(look, "LOCK a", 2)
		w.Want(`LOST lock=a .*`)
		w.Say("UNLOCK a", `ERR LOST .*`)
		next.Want(granted5)
		if now := d.now(); now < deadline {
			t.Errorf("granted at %v, before the deadline %v", now, deadline)
		}
		next.Say("UNLOCK a", `OK lock=a`)
		behind.Want(granted5)
	})
}
