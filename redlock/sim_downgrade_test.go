package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const readersKey = "redlockd:shared"

// wantOnNodes checks the value of x on each node.
func (f *fleet) wantOnNodes(when string, values ...string) {
	f.Helper()
	for i, sim := range f.sims {
		want(f, name("%s: x on node %d", when, i), sim.Get("redlock:x"), values[i%len(values)])
	}
}

// downgraded acquires x and makes it shared.
func (f *fleet) downgraded(r redlock.Request) *redlock.Lease {
	f.Helper()
	l := f.acquire(r)
	want(f, "Downgrade", l.Downgrade(f.Context(), 0, nil), nil)
	synctest.Wait()
	return l
}

// A reader of another host waits until the lock is downgraded, and gets it then. A writer waits
// for both readers. The downgraded lease keeps its ID and fencing token.
func TestDowngradeLetsReadersIn(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(exclusive)
		id, fence := l.ID(), l.Fence()
		reader := patient
		reader.Shared = true
		r := f.wait(other, reader)
		time.Sleep(3 * time.Second)
		want(t, "tries of the reader", r.tries(), 2)
		want(t, "shared", l.Shared(), false)
		at := f.now()
		want(t, "Downgrade", l.Downgrade(t.Context(), 0, nil), nil)
		want(t, "shared", l.Shared(), true)
		want(t, "record", l.Record().Shared, true)
		r.wantAfter("reader", at, 0, soonAfter)
		want(t, "id", l.ID(), id)
		want(t, "fencing token", l.Fence(), fence)
		if r.lease.Fence() <= fence {
			t.Errorf("the reader has the fencing token %d after %d", r.lease.Fence(), fence)
		}
		f.wantShared("both", 2)

		w := f.wait(other, patient)
		time.Sleep(40 * time.Second) // the lease is extended meanwhile
		want(t, "lease", l.Err(), nil)
		f.release(l)
		time.Sleep(time.Second)
		want(t, "the writer waits for the reader", isDone(w.done), false)
		at = f.now()
		want(t, "release of the reader", r.lease.Release(t.Context()), nil)
		w.wantAfter("writer", at, 0, 2*soonAfter)
		w.end()
	})
}

// If too few nodes answer, the lease is still shared on this host. Its next extension makes it
// shared on the nodes that answer by then. It cannot be handed over.
func TestDowngradeWithoutQuorum(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		r := passed
		l := f.acquire(r)
		every(f.sims[1:], hang)
		wantErr(t, "Downgrade", l.Downgrade(t.Context(), 0, nil), redlock.ErrNoQuorum)
		want(t, "shared", l.Shared(), true)
		_, _, err := l.HandOver(r)
		wantErr(t, "HandOver", err, redlock.ErrRequest)
		every(f.sims[1:], resume)
		time.Sleep(time.Second) // a third of the ttl
		want(t, "lease", l.Err(), nil)
		f.wantOnNodes("after an extension", readersKey)
		f.release(l)
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// A node that hangs during the downgrade has the lock as exclusive until an extension reaches it.
func TestDowngradeReachesHungNodeLater(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(passed)
		hang(f.sims[2])
		want(t, "Downgrade", l.Downgrade(t.Context(), 0, nil), nil)
		f.sims[2].Resume()
		time.Sleep(2 * time.Second)
		f.wantOnNodes("after an extension", readersKey)
		want(t, "lease", l.Err(), nil)
	})
}

// If a node lost the lock, the repair sets it again as shared.
func TestDowngradedIsRepairedAsShared(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.downgraded(passed)
		for i, sim := range f.sims {
			forget(sim)
			time.Sleep(1100 * ms) // one extension finds the lock missing
			want(t, name("x on node %d", i), sim.Get("redlock:x"), readersKey)
			time.Sleep(time.Second)
		}
		want(t, "lease", l.Err(), nil)
		f.wantShared("in the end", 1)
	})
}

// If a daemon ends after it recorded the downgrade and before any node got it, the next daemon
// makes the adopted lease shared.
func TestDowngradeIsAdopted(t *testing.T) {
	for what, r := range map[string]redlock.Request{"one name": passed, "several": {Names: []string{"x", "y"}, TTL: 3 * time.Second, Keep: true}} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l := f.acquire(r)
			record := l.Record()
			record.Shared = true
			f.restart(0)
			adopted, seen := f.adopt(record)
			synctest.Wait()
			want(t, what+": shared", adopted.Shared(), true)
			f.wantHeld(adopted, seen)
			f.wantOnNodes(what, readersKey)
			_, _, err := adopted.HandOver(r)
			wantErr(t, what+": HandOver", err, redlock.ErrRequest)
			f.release(adopted)
			synctest.Wait()
			f.wantNoKeys(what)
		})
	}
}

// If a confirmation is in progress during the downgrade, the lease is not lost, whichever reaches
// a node first.
func TestDowngradeDuringConfirmation(t *testing.T) {
	for after := time.Duration(0); after < 40*ms; after += spaced(ms / 4) {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			f.delay(each(ms), each(ms))
			l, seen := f.watch(passed)
			time.Sleep(after)
			want(t, name("Downgrade after %v", after), l.Downgrade(t.Context(), 0, nil), nil)
			time.Sleep(time.Second)
			f.wantHeld(l, seen)
		})
	}
}

// If the keeper began a confirmation before the downgrade and sends it after that, all nodes
// refuse it. The lease is not lost.
func TestConfirmationFollowsDowngrade(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		var lease atomic.Pointer[redlock.Lease]
		f.restart(0, func(o *redlock.Options) {
			redlock.WhenConfirming(o, func() {
				if l := lease.Load(); l != nil && !l.Shared() {
					want(t, "Downgrade", l.Downgrade(t.Context(), 0, nil), nil)
				}
			})
		})
		l, seen := f.watch(passed)
		lease.Store(l)
		time.Sleep(2 * time.Second)
		want(t, "shared", l.Shared(), true)
		f.wantHeld(l, seen)
		f.wantOnNodes("in the end", readersKey)
	})
}

// Downgrade extends a reader, and returns an error for a semaphore and for a lease that has
// ended.
func TestDowngradeOfOthers(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		reader := f.acquire(sharing["readers"])
		before := reader.Deadline()
		time.Sleep(100 * ms)
		want(t, "reader", reader.Downgrade(t.Context(), 0, nil), nil)
		want(t, "extended by", reader.Deadline()-before, 100*ms)
		f.release(reader)
		wantErr(t, "released", reader.Downgrade(t.Context(), 0, nil), redlock.ErrReleased)
		place := f.acquire(sharing["slots"])
		wantErr(t, "semaphore", place.Downgrade(t.Context(), 0, nil), redlock.ErrRequest)
		want(t, "semaphore", place.Shared(), false)
		f.release(place)
		l := f.acquire(passed)
		wantErr(t, "ttl", l.Downgrade(t.Context(), time.Hour, nil), redlock.ErrRequest)
		want(t, "shared", l.Shared(), false)
		every(f.sims, func(s *redlocktest.Sim) { forget(s) })
		wantErr(t, "gone", l.Downgrade(t.Context(), 0, nil), redlock.ErrLost)
	})
}

// FORCE revokes a downgraded lease like any other: its next extension reports it.
func TestForceOfDowngraded(t *testing.T) {
	twoHosts(t, 3, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.downgraded(passed)
		_, err := other.Force(t.Context(), "x")
		want(t, "FORCE", err, nil)
		time.Sleep(time.Second + 100*ms) // a third of the ttl
		want(t, "reason", l.Reason(), redlock.LostForced)
	})
}
