package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// handOver hands l over to a client with the same request.
func (f *fleet) handOver(l *redlock.Lease) (*redlock.PendingRelease, redlock.Request) {
	f.Helper()
	return f.handOverTo(l, redlock.Request{Name: "x", TTL: 10 * time.Second})
}

func (f *fleet) handOverTo(l *redlock.Lease, r redlock.Request) (*redlock.PendingRelease, redlock.Request) {
	f.Helper()
	releasing, begun, err := l.HandOver(r)
	want(f, "HandOver", err, nil)
	r.Pending = begun
	return releasing, r
}

// passOn hands l over, and returns the lease of the next holder.
func (f *fleet) passOn(l *redlock.Lease, r redlock.Request) *redlock.Lease {
	f.Helper()
	_, r = f.handOverTo(l, r)
	next, err := f.q.Acquire(f.Context(), r)
	if err != nil {
		f.Fatal("the next holder's Acquire: ", err)
	}
	return next
}

// A hand-over is a release and a grant in one command per node. The fencing token is larger.
// Nodes that had lost the lock get it too. Guards op h.
func TestHandOver(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		forget(f.sims[2])
		j := f.record()
		releasing, r := f.handOver(l)
		wantErr(t, "the old lease", l.Err(), redlock.ErrReleased)
		next := f.acquire(r)
		want(t, "its release", releasing.Wait(t.Context()), nil)
		if next.Fence() <= l.Fence() {
			t.Errorf("fencing token %d after %d", next.Fence(), l.Fence())
		}
		want(t, "other clients wait", next.Wanted(), false)
		for i, sim := range f.sims {
			want(t, name("the holder on node %d", i), sim.Get("redlock:x")[:22], next.ID())
		}
		for i, commands := range j.perNode() {
			want(t, name("commands on node %d", i), commands, 1)
		}
		want(t, "hand-overs", f.q.Status().Counts.HandOvers, uint64(1))
		f.release(next)
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// A node that misses a hand-over still gets the release: when it is up again, stops hanging, or
// may vote again. Guards Call.Release.
func TestHandOverPastNodes(t *testing.T) {
	for what, trouble := range map[string]struct{ begin, end func(*redlocktest.Sim) }{
		"down":    {down, up},
		"hung":    {hang, resume},
		"silent":  {hang, resume},
		"late":    {hang, resume},
		"no vote": {func(s *redlocktest.Sim) { s.Do("HSET", nodeKey, "epoch", "another") }, func(*redlocktest.Sim) {}},
		"refuses": {func(s *redlocktest.Sim) { s.Refuse("OOM command not allowed") }, func(s *redlocktest.Sim) { s.Refuse("") }},
		"unheard": {func(s *redlocktest.Sim) { s.DropReplies(1) }, func(*redlocktest.Sim) {}},
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l := f.acquire(redlock.Request{Name: "x", TTL: 25 * time.Second})
			every(f.sims[:2], trouble.begin)
			switch what {
			case "down", "hung":
				time.Sleep(time.Second) // the host knows that
			case "silent": // the host does not know it yet
				f.release(f.acquire(redlock.Request{Name: "y", TTL: time.Second}))
				time.Sleep(100 * ms)
			}
			releasing, r := f.handOver(l)
			next := f.acquire(r)
			want(t, what+": release", releasing.Wait(t.Context()), nil)
			time.Sleep(200 * ms)
			every(f.sims[:2], trouble.end)
			time.Sleep(2 * time.Second)
			for i, sim := range f.sims {
				if token := sim.Get("redlock:x"); token != "" && token[:22] == l.ID() {
					t.Errorf("%s: node %d still has the previous holder's lock", what, i)
				}
			}
			f.release(next)
			time.Sleep(2 * time.Second)
			f.wantNoKeys(what)
		})
	}
}

// If no quorum grants a hand-over, both tokens are released. The next client continues as if
// there had been no hand-over.
func TestHandOverFails(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		for _, sim := range f.sims[:3] {
			forget(sim)
		}
		foreign(f.sims[:3], "x", time.Second)
		releasing, r := f.handOver(l)
		wantErr(t, "release of the lost lease", releasing.Wait(t.Context()), redlock.ErrLost)
		synctest.Wait()
		r.Wait = redlock.Forever
		began := f.now()
		next := f.acquire(r)
		wantWithin(t, "granted when the other client's lock has expired", f.now()-began, 900*ms, 1200*ms)
		f.release(next)
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// If the next client abandons a hand-over, no keys stay on the nodes.
func TestHandOverAbandoned(t *testing.T) {
	for what, end := range map[string]func(f *fleet, r redlock.Request){
		"abandoned":   func(_ *fleet, r redlock.Request) { r.Pending.Abandon() },
		"cancelled":   func(f *fleet, r redlock.Request) { f.acquireCancelled(r) },
		"bad request": func(f *fleet, r redlock.Request) { r.TTL = 1; f.q.Acquire(f.Context(), r) },
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			releasing, r := f.handOver(f.acquire(oneTry))
			end(f, r)
			want(t, what+": release", releasing.Wait(t.Context()), nil)
			synctest.Wait()
			f.wantNoKeys(what)
		})
	}
}

func (f *fleet) acquireCancelled(r redlock.Request) {
	ctx, cancel := cancelled(f)
	defer cancel()
	_, err := f.q.Acquire(ctx, r)
	wantErr(f, "cancelled", err, ctx.Err())
}

// If HandOver returns an error for the request, the lease stays as it is.
func TestHandOverRefused(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(oneTry)
		for what, r := range map[string]redlock.Request{
			"another lock": {Name: "y", TTL: time.Second},
			"more locks":   {Names: []string{"x", "y"}, TTL: time.Second},
			"for readers":  {Name: "x", Shared: true, TTL: time.Second},
			"no ttl":       {Name: "x"},
		} {
			_, _, err := l.HandOver(r)
			wantErr(t, what, err, redlock.ErrRequest)
			want(t, what+": the lease", l.Err(), nil)
		}
		f.release(l)
		_, _, err := l.HandOver(oneTry)
		wantErr(t, "released", err, redlock.ErrReleased)
		shared := f.acquire(redlock.Request{Name: "x", Shared: true, TTL: time.Second})
		_, _, err = shared.HandOver(oneTry)
		wantErr(t, "a reader's", err, redlock.ErrRequest)
		lost := f.acquire(redlock.Request{Name: "z", TTL: time.Second})
		time.Sleep(2 * time.Second)
		_, _, err = lost.HandOver(redlock.Request{Name: "z", TTL: time.Second})
		wantErr(t, "lost", err, redlock.ErrLost)
	})
}

// Several names are handed over together.
func TestHandOverOfSeveral(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		r := redlock.Request{Names: []string{"x", "y"}, TTL: 10 * time.Second}
		l := f.acquire(r)
		releasing, begun, err := l.HandOver(r)
		want(t, "HandOver", err, nil)
		r.Pending = begun
		next := f.acquire(r)
		want(t, "release", releasing.Wait(t.Context()), nil)
		if next.Fence() <= l.Fence() {
			t.Errorf("fencing token %d after %d", next.Fence(), l.Fence())
		}
		one := f.acquire(redlock.Request{Name: "z", TTL: time.Second})
		f.release(one)
		f.release(next)
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// cancelled returns a context that has ended.
func cancelled(f *fleet) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	return ctx, cancel
}

// A pending request becomes one lease. A second Acquire with the same request does not return
// another one.
func TestPendingUsedTwice(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		_, r := f.handOver(f.acquire(oneTry))
		first := f.acquire(r)
		second, err := f.q.Acquire(t.Context(), r)
		if err == nil && first.Err() == nil && second.Err() == nil {
			t.Errorf("two leases of one lock: same token %v, same fencing token %v", first.ID() == second.ID(), first.Fence() == second.Fence())
		}
	})
}

// Acquire refuses a pending hand-over of another lock, and releases it.
func TestPendingForAnotherLock(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		_, r := f.handOver(f.acquire(oneTry))
		r.Name = "y"
		_, err := f.q.Acquire(t.Context(), r)
		wantErr(t, "a pending hand-over of x for y", err, redlock.ErrRequest)
		time.Sleep(10 * ms)
		f.wantNoKeys("after that")
	})
}

// Abandon after the grant (deferred, like a Rollback) must not release a lease that is held.
func TestPendingAbandonedAfterGrant(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		_, r := f.handOver(f.acquire(oneTry))
		first := f.acquire(r)
		r.Pending.Abandon()
		synctest.Wait()
		second, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: time.Second})
		if err == nil && first.Err() == nil && second.Err() == nil {
			t.Errorf("two hold x: the first one for another %v", first.Validity())
		}
	})
}

// If several names are handed over, they have one fencing token: the largest that any of them has
// on any node. The counters of all names get it, so each name alone is in order. Guards
// attempt.agreeOnFence; noteFences.
func TestHandOverOfSeveralNames(t *testing.T) {
	for _, names := range [][]string{{"x", "y"}, {"y", "x"}} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			several := redlock.Request{Names: names, TTL: 10 * time.Second}
			l := f.acquire(several)
			ahead := uint64(time.Now().Add(24 * time.Hour).UnixMicro()) // grants of other locks with that counter
			every(f.sims, func(s *redlocktest.Sim) { setCounter(s, ahead) })
			next := f.passOn(l, several)
			want(t, "fencing token", next.Fence(), ahead+1)
			f.release(next)
			y := f.acquire(redlock.Request{Name: "y", TTL: time.Second})
			if y.Fence() <= next.Fence() {
				t.Errorf("%v: fencing token %d of y after %d", names, y.Fence(), next.Fence())
			}
		})
	}
}

// If a client waits for one of several names, the holder of all of them learns of it, whichever
// name it is. Guards noteFences: wanted.
func TestHandOverOfSeveralWantedNames(t *testing.T) {
	for _, names := range [][]string{{"x", "y"}, {"y", "x"}} {
		several := redlock.Request{Names: names, TTL: 30 * time.Second, Keep: true}
		wakeTest(t, several, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
			next := f.passOn(l, several)
			want(t, name("%v: other clients wait", names), next.Wanted(), true)
			f.release(next)
			<-w.done
		})
	}
}

// If one of several names is held, the refused client learns for how long, whichever name it is.
// Guards Ballot.count: decisive.
func TestHandOverOfSeveralNamesRefused(t *testing.T) {
	for _, names := range [][]string{{"x", "y"}, {"y", "x"}} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			several := redlock.Request{Names: names, TTL: 10 * time.Second}
			l := f.acquire(several)
			every(f.sims, func(s *redlocktest.Sim) { s.Do("DEL", "redlock:x") })
			foreign(f.sims, "x", time.Hour)
			_, r := f.handOverTo(l, several)
			_, err := f.q.Acquire(t.Context(), r)
			held, is := errors.AsType[*redlock.HeldError](err)
			want(t, name("%v: got %v, want a HeldError", names, err), is, true)
			want(t, name("%v: held for", names), held.TTL, time.Hour)
		})
	}
}
