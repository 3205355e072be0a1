package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// busy makes each operation take a node the given time, as on a processor that also serves
// others. The calls of one group are answered together.
func (f *fleet) busy(each time.Duration) *journal {
	j := &journal{commands: make([]int, len(f.sims))}
	for i, sim := range f.sims {
		sim.OnCommand(func(c redlock.Command) {
			all := operations(c)
			time.Sleep(time.Duration(len(all)) * each)
			j.write(i, f.now(), all)
		})
	}
	return j
}

// oneThread prevents a crash of the race detector (Go 1.26). If timers of many goroutines of a
// bubble are due at one instant, several threads read them, but the detector takes these threads
// for one.
func oneThread(t *testing.T) {
	procs := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
}

// isThin reports whether only a part of each crowd, and few seeds, are simulated: the race detector takes ten
// times the processor time. packaging/test.sh also runs whole crowds.
func isThin() bool { return raceEnabled || testing.Short() }

// thinned returns the size of a crowd, and how long a node takes for each call. If isThin, the crowd is
// smaller by the factor part, and each call slower by part.
func thinned(n int, each time.Duration, part int) (int, time.Duration) {
	if !isThin() {
		return n, each
	}
	return n / part, each * time.Duration(part)
}

// needWholeCrowd skips a test that shows nothing with a smaller crowd.
func needWholeCrowd(t *testing.T) {
	t.Helper()
	if isThin() {
		t.Skipf("it takes minutes with the race detector: go test ./redlock -run %s", t.Name())
	}
}

// spaced returns the step between cases of a loop. If isThin, only one of eight cases runs.
func spaced(step time.Duration) time.Duration {
	if isThin() {
		return 8 * step
	}
	return step
}

// crowd acquires n locks concurrently and waits until all are granted.
func (f *fleet) crowd(n int, r redlock.Request) (leases []*redlock.Lease) {
	f.Helper()
	leases = make([]*redlock.Lease, n)
	var all sync.WaitGroup
	for i := range n {
		r := r
		r.Name = name(r.Name+"%d", i)
		all.Go(func() {
			var err error
			if leases[i], err = f.q.Acquire(f.Context(), r); err != nil {
				f.Errorf("%s: %v", r.Name, err)
			}
		})
	}
	all.Wait()
	return leases
}

// Thousands of locks that are requested at once are granted as fast as the nodes can answer, with
// few failed attempts. Held leases are extended meanwhile. Guards attempts.Limiter;
// Lane.nextCalls.
func TestCrowd(t *testing.T) {
	oneThread(t)
	const kept = 200
	for what, each := range map[string]time.Duration{"quick": ms / 20, "slow": ms / 2} {
		wanted := 4000
		if what == "quick" {
			wanted, each = thinned(wanted, each, 4)
		} else {
			wanted, _ = thinned(wanted, each, 4)
		}
		simTest(t, 5, func(t *testing.T, f *fleet) {
			var lost atomic.Int32
			onLost := func(*redlock.Lease) { lost.Add(1) }
			f.crowd(kept, redlock.Request{Name: "kept", TTL: 1500 * ms, Keep: true, OnLost: onLost})
			j := f.busy(each)
			start := f.now()
			f.crowd(wanted, redlock.Request{Name: "x", TTL: 30 * time.Second, Wait: redlock.Forever, Keep: true, OnLost: onLost})
			took, least := f.now()-start, time.Duration(wanted)*each // the extensions, and the search for the right number of attempts, take about as much
			if took > 5*least {
				t.Errorf("%s: %d locks took %v, and the nodes needed %v", what, wanted, took, least)
			}
			if attempts := len(j.on(0, "a")); attempts > 2*wanted {
				t.Errorf("%s: %d attempts for %d locks", what, attempts, wanted)
			}
			if lost.Load() > 0 {
				t.Errorf("%s: %d leases are lost, although all nodes work", what, lost.Load())
			}
		})
	}
}

// A lane full of questions still extends held leases. An extension is sent before the waiting
// questions, after at most one group of them. Guards admit, nextCalls.
func TestExtensionsComeFirst(t *testing.T) {
	needWholeCrowd(t)
	oneThread(t)
	simTest(t, 3, func(t *testing.T, f *fleet) {
		var lost atomic.Int32
		f.crowd(50, redlock.Request{Name: "kept", TTL: 500 * ms, Keep: true, OnLost: func(*redlock.Lease) { lost.Add(1) }})
		questions, each := 2000, ms/10
		f.busy(each)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range questions {
			all.Go(func() {
				for ctx.Err() == nil {
					f.q.Who(ctx, "x")
					time.Sleep(10 * ms)
				}
			})
		}
		all.Wait()
		want(t, "leases lost", lost.Load(), 0)
	})
}

// If more extensions are due than the nodes can answer soon, the leases that expire first are
// extended first. Guards extensionQueue.
func TestShortLeasesComeFirst(t *testing.T) {
	needWholeCrowd(t)
	oneThread(t)
	simTest(t, 3, func(t *testing.T, f *fleet) {
		var lost atomic.Int32
		onLost := func(*redlock.Lease) { lost.Add(1) }
		leases, each := 10_000, ms/5
		f.crowd(leases, redlock.Request{Name: "long", TTL: 30 * time.Second, Keep: true, OnLost: onLost})
		f.crowd(50, redlock.Request{Name: "short", TTL: time.Second, Keep: true, OnLost: onLost})
		time.Sleep(9900 * ms)
		f.busy(each)
		time.Sleep(4 * time.Second) // the extensions of the long leases take half of it
		want(t, "leases lost", lost.Load(), 0)
	})
}

// A client that wants one lock does not wait for thousands of requests of another user. Guards
// Limiter.nextLocked.
func TestCrowdOfAnotherUser(t *testing.T) {
	oneThread(t)
	simTest(t, 3, func(t *testing.T, f *fleet) {
		others, each := 5000, ms/10
		f.busy(each)
		var all sync.WaitGroup
		all.Go(func() {
			f.crowd(others, redlock.Request{Name: "x", TTL: 30 * time.Second, Wait: redlock.Forever, Holder: redlock.Holder{UID: 1}})
		})
		time.Sleep(20 * ms)
		start := f.now()
		f.acquire(redlock.Request{Name: "other", TTL: time.Second, Holder: redlock.Holder{UID: 2}})
		if took := f.now() - start; took > 100*ms {
			t.Errorf("beside %d attempts of another user it took %v", others, took)
		}
		all.Wait()
	})
}

// A cancelled request that waits for its turn ends at once and takes no turn. Guards
// Limiter.withdraw, admit.
func TestCrowdIsCancelled(t *testing.T) {
	oneThread(t)
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.busy(ms)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() {
				f.q.Acquire(ctx, redlock.Request{Name: name("x%d", i), TTL: time.Second, Wait: redlock.Forever})
			})
		}
		time.Sleep(10 * ms)
		start := f.now()
		cancel()
		all.Wait()
		want(t, "time until all ended", f.now()-start, 0)
		time.Sleep(time.Second)
		f.wantNoKeys("all cancelled")
		every(f.sims, func(s *redlocktest.Sim) { s.OnCommand(nil) })
		start = f.now()
		f.crowd(200, redlock.Request{Name: "y", TTL: time.Second})
		want(t, "200 more took", f.now()-start, 0)
	})
}

// Without a quorum, thousands of requests fail soon. No request waits for longer than
// its Wait. Guards Limiter.shrinkLocked, acquisition.enterLimiter.
func TestCrowdWithoutQuorum(t *testing.T) {
	oneThread(t)
	simTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims[:2], down)
		synctest.Wait()
		start := f.now()
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				r := redlock.Request{Name: name("x%d", i), TTL: 10 * time.Second, Wait: time.Duration(i%2) * time.Second}
				_, err := f.q.Acquire(t.Context(), r)
				wantErr(t, r.Name, err, redlock.ErrNoQuorum)
				if took := f.now() - start; took > r.Wait+600*ms {
					t.Errorf("%s: failed after %v, want at most 600ms more than %v", r.Name, took, r.Wait)
				}
			})
		}
		all.Wait()
	})
}

// If a lease is lost because it was not extended in time, its cause says so, and how late the
// extension was. Guards Lease.lossCauseLocked, noteAsked.
func TestOverdue(t *testing.T) {
	oneThread(t)
	for _, after := range []time.Duration{0, 500 * ms} { // after 500 ms all were extended once
		simTest(t, 3, func(t *testing.T, f *fleet) {
			n, each := 2048, ms/2 // 32 batches: at most 16 are in progress, and a node answers eight after 256 ms
			leases := f.crowd(n, redlock.Request{Name: "x", TTL: time.Second, Keep: true})
			time.Sleep(after)
			f.busy(each)
			time.Sleep(time.Second) // the extensions would take as long, and leases are lost 467 ms after they were due
			wantOverdue(t, leases)
		}, func(o *redlock.Options) { o.NodeTimeout = 900 * ms })
	}
}

// wantOverdue checks that some leases were never asked for, and that some extensions were sent
// late.
func wantOverdue(t *testing.T, leases []*redlock.Lease) {
	t.Helper()
	var never, late int
	for _, l := range leases {
		if l.Reason() == "" {
			continue
		}
		overdue, is := errors.AsType[*redlock.OverdueError](l.Cause())
		switch {
		case is && overdue.Took != 0:
			t.Errorf("%s: the cause says that it was granted late, after %v", l.Name(), overdue.Took)
		case !is: // the extension was sent in time
			wantErr(t, l.Name(), l.Cause(), redlock.ErrNoQuorum)
		case overdue.Asked == 0:
			never++
			wantWithin(t, "due before", overdue.Due, 400*ms, 500*ms)
			want(t, "the cause says that none was sent", strings.Contains(overdue.Error(), "this process has not sent it"), true)
		default:
			late++
			wantWithin(t, "late", overdue.Due-overdue.Asked, 100*ms, 500*ms)
			want(t, "the cause says that it was sent late", strings.Contains(overdue.Error(), "this process sent it"), true)
		}
	}
	if never == 0 || late == 0 {
		t.Errorf("%d extensions were never sent and %d were late, want some of both", never, late)
	}
}

// If a lease was granted too late to be extended, its cause does not blame a late extension.
// Guards Lease.lateGrantTimeLocked.
func TestGrantedTooLate(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.delay(each(0), func(int) time.Duration { return 850 * ms })
		l, _ := f.watch(redlock.Request{Name: "x", TTL: time.Second, Keep: true})
		<-l.Lost()
		overdue, is := errors.AsType[*redlock.OverdueError](l.Cause())
		if want(t, "overdue", is, true); is {
			want(t, "took", overdue.Took, 850*ms)
			want(t, "cause", overdue.Error(), "x: it was granted 850ms after the request, when its extension was already overdue: the nodes are too slow for so short a ttl, or the host is overloaded, or was stopped")
		}
	}, func(o *redlock.Options) { o.NodeTimeout = 900 * ms })
}

// If a lease is lost before the nodes have answered its first extension, its cause says so:
// nothing has failed yet. Guards Lease.lossCauseLocked: asked.
func TestLostBeforeAnyAnswer(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: time.Second, Keep: true})
		every(f.sims, hang)
		<-l.Lost()
		wantErr(t, "cause", l.Cause(), redlock.ErrNoQuorum)
		if cause := fmt.Sprint(l.Cause()); !strings.Contains(cause, "the extension was sent to the nodes") {
			t.Errorf("the cause is %s, want it to say that the nodes were asked", cause)
		}
	}, func(o *redlock.Options) { o.NodeTimeout = 700 * ms })
}

// If the extension was sent in time, the cause is no OverdueError. The same holds if Keep was
// called only after an extension would have been due. Guards Lease.lossCauseLocked, Keep: nextExtension.
func TestNotOverdue(t *testing.T) {
	oneThread(t)
	for _, kept := range []bool{true, false} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l, _ := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: kept})
			every(f.sims, hang)
			f.at(l.Since(), 2*time.Second)
			l.Keep()
			<-l.Lost()
			wantErr(t, "cause", l.Cause(), redlock.ErrNoQuorum)
			_, is := errors.AsType[*redlock.OverdueError](l.Cause())
			want(t, name("overdue, kept from the beginning %v", kept), is, false)
		})
	}
}

// If all nodes hang, a request without Wait fails within two node timeouts, however many requests
// wait: one timeout until its turn, one for the nodes. Guards Limiter.EnterFirst.
func TestHungNodesAnswerTryBesideCrowd(t *testing.T) {
	oneThread(t)
	for _, others := range []int{1, 300, 3000} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			every(f.sims, hang)
			var all sync.WaitGroup
			for i := range others {
				all.Go(func() {
					f.q.Acquire(t.Context(), redlock.Request{Name: name("x%d", i), TTL: time.Second, Wait: time.Second})
				})
			}
			time.Sleep(ms)
			start := f.now()
			_, err := f.q.Acquire(t.Context(), redlock.Request{Name: "y", TTL: time.Second})
			wantErr(t, "y", err, redlock.ErrNoQuorum)
			if took := f.now() - start; took > 100*ms {
				t.Errorf("beside %d others it took %v, want at most 100ms", others, took)
			}
			all.Wait()
		})
	}
}
