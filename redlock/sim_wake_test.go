package redlock_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// patient waits for x. If no node calls it, it retries after 20 s at the earliest.
var patient = redlock.Request{Name: "x", TTL: time.Minute, Wait: redlock.Forever}

// longLeases allows leases of minutes.
func longLeases(o *redlock.Options) { o.MaxTTL = 2 * time.Minute }

// wakeTest makes one host hold x while another host waits for it. It passes the waiter, which
// counts its failed attempts, to body.
func wakeTest(t *testing.T, held redlock.Request, body func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting)) {
	t.Helper()
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		l := f.acquire(held)
		time.Sleep(10 * ms)
		w := f.wait(other, patient)
		time.Sleep(100 * ms)
		body(t, f, l, w)
	})
}

// twoHosts opens a second host on the same nodes; change alters only its options.
func twoHosts(t *testing.T, n int, body func(t *testing.T, f *fleet, other *redlock.Quorum), change ...func(*redlock.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, n)
		defer f.closeSims()
		f.open(longLeases)
		defer f.q.Close()
		other := f.another(append(change, longLeases)...)
		defer other.Close()
		f.q.Settle(t.Context())
		other.Settle(t.Context())
		synctest.Wait()
		f.delay(each(100*time.Microsecond), each(100*time.Microsecond))
		body(t, f, other)
	})
}

// waiting is an Acquire in progress.
type waiting struct {
	f       *fleet
	failed  atomic.Int32
	done    chan struct{}
	granted time.Duration // when it was granted
	lease   *redlock.Lease
	err     error
}

func (f *fleet) wait(q *redlock.Quorum, r redlock.Request) *waiting {
	return f.waitIn(f.Context(), q, r)
}

func (f *fleet) waitIn(ctx context.Context, q *redlock.Quorum, r redlock.Request) *waiting {
	w := &waiting{f: f, done: make(chan struct{})}
	r.Failed = func(error) { w.failed.Add(1) }
	go func() {
		defer close(w.done)
		w.lease, w.err = q.Acquire(ctx, r)
		w.granted = f.now()
	}()
	return w
}

// tries returns the number of failed attempts.
func (w *waiting) tries() int { return int(w.failed.Load()) }

// wantAfter checks that the lock was granted between least and most after since.
func (w *waiting) wantAfter(what string, since, least, most time.Duration) {
	w.f.Helper()
	<-w.done
	want(w.f, what+": error", w.err, nil)
	wantWithin(w.f, what+": granted after", w.granted-since, least, most)
}

const (
	keptLong = 30 * time.Second
	// soonAfter is a round trip (1 ms to the slowest of five nodes here), the wake-up, and the
	// window in which waiters that were woken together retry.
	soonAfter = 8 * ms
)

var exclusive = redlock.Request{Name: "x", TTL: keptLong, Keep: true}

// A release calls the waiter. By then the waiter has made two attempts: one finds the lock held,
// one enters the queues. Guards Waiters, op i.
func TestWokenByRelease(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		time.Sleep(3 * time.Second)
		want(t, "attempts", w.tries(), 2)
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, soonAfter)
		want(t, "failed attempts in the end", w.tries(), 2)
	})
}

// One hung node of five does not delay the waiter.
func TestWokenWhileOneNodeHangs(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		f.sims[1].Hang()
		time.Sleep(time.Second)
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, soonAfter)
		f.sims[1].Resume()
	})
}

// A waiter gets the lock when a lease that nobody extends expires, and not later.
func TestWokenByExpiry(t *testing.T) {
	held := redlock.Request{Name: "x", TTL: 3 * time.Second}
	wakeTest(t, held, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		w.wantAfter("deadline", l.Deadline(), 0, 50*ms)
	})
}

func TestWokenByForce(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		at := f.now()
		_, err := f.q.Force(t.Context(), "x")
		want(t, "FORCE", err, nil)
		w.wantAfter("force", at, redlock.PassWindow, redlock.PassWindow+3*ms+soonAfter)
	})
}

// Neither an extension nor a hand-over wakes a waiter of another host.
func TestNotWokenByOthers(t *testing.T) {
	held := redlock.Request{Name: "x", TTL: 6 * time.Second, Keep: true}
	wakeTest(t, held, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		tries := w.tries()
		time.Sleep(5 * time.Second) // the lease is extended every two seconds
		want(t, "attempts during extensions", w.tries(), tries)
		for range 5 {
			l = f.passOn(l, held)
			want(t, "other clients wait", l.Wanted(), true)
			time.Sleep(20 * ms)
		}
		want(t, "attempts during hand-overs", w.tries(), tries)
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, soonAfter)
	})
}

// A foreign client calls nobody, so the first waiter asks every 250 ms.
func TestWokenByForeign(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		foreign(f.sims, "x", time.Hour)
		w := f.wait(f.q, patient)
		time.Sleep(5 * time.Second)
		want(t, "it asks four times a second", w.tries() >= 20 && w.tries() <= 22, true)
		at := f.now()
		for _, sim := range f.sims {
			sim.Do("DEL", "redlock:x")
		}
		w.wantAfter("DEL", at, 0, 250*ms+soonAfter)
	}, longLeases)
}

// If a foreign client holds only a quorum, each attempt of a waiter takes the other nodes and
// releases them. These releases do not call the waiter itself again and again.
func TestNotWokenByItself(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		foreign(f.sims[:3], "x", time.Hour)
		w := f.wait(f.q, patient)
		time.Sleep(5 * time.Second)
		want(t, "it asks four times a second", w.tries() >= 20 && w.tries() <= 42, true) // called by a minority, it also asks after three node timeouts
		at := f.now()
		for _, sim := range f.sims[:3] {
			sim.Do("DEL", "redlock:x")
		}
		w.wantAfter("DEL", at, 0, 250*ms+soonAfter)
	}, longLeases)
}

// deaf makes nodes call no waiters.
func deaf(o *redlock.Options) {
	for i := range o.Nodes {
		o.Nodes[i].Listen = nil
	}
}

// If nodes call no waiters, the waiter retries at random intervals.
func TestPolling(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		want(t, "they call waiters", f.q.Status().Nodes[0].Calls, false)
		l := f.acquire(exclusive)
		w := f.wait(f.q, patient)
		time.Sleep(10 * time.Second)
		if w.tries() < 40 {
			t.Errorf("%d attempts in 10 s, want at least 40", w.tries())
		}
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, 300*ms)
	}, deaf, longLeases)
}

// Waiters that were refused together do not retry at the same instant when the lock ends.
// Otherwise none of several hosts would get a quorum.
func TestWaitersRetryAtDifferentInstants(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		foreign(f.sims, "x", 15*ms) // less than the shortest first delay
		end := f.now() + 15*ms
		var mu sync.Mutex
		asked := map[time.Duration]bool{}
		f.sims[0].OnCommand(func(redlock.Command) {
			mu.Lock()
			defer mu.Unlock()
			asked[f.now()] = f.now() > end
		})
		for range 30 {
			f.wait(f.q, patient)
		}
		time.Sleep(19 * ms)
		mu.Lock()
		defer mu.Unlock()
		maps.DeleteFunc(asked, func(_ time.Duration, after bool) bool { return !after })
		if len(asked) < 15 {
			t.Errorf("30 waiters retried at %d instants, want at least 15: %v", len(asked), asked)
		}
	}, deaf, longLeases)
}

// If the listeners break, a waiter retries at once, and then at random intervals until they are
// connected again. STATUS reports it.
func TestListenersBreak(t *testing.T) {
	wakeTest(t, exclusive, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		want(t, "they call waiters", f.q.Status().Nodes[0].Calls, true)
		for range 3 {
			every(f.sims, func(s *redlocktest.Sim) { s.Cut() })
			time.Sleep(time.Second)
		}
		want(t, "they call waiters again", f.q.Status().Nodes[0].Calls, true)
		time.Sleep(2 * time.Second) // within that, the waiter asks for what it may have missed
		tries := w.tries()
		time.Sleep(5 * time.Second)
		want(t, "attempts since then", w.tries(), tries)
		at := f.now()
		f.release(l)
		w.wantAfter("release", at, 0, soonAfter)
	})
}

// Later readers do not overtake a waiting writer. If the writer stops waiting, they continue at
// once. Guards ops i, s and d.
func TestWriterIsNotStarved(t *testing.T) {
	reader := redlock.Request{Name: "x", TTL: keptLong, Shared: true, Keep: true}
	wakeTest(t, reader, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
		late := reader
		late.Wait = 50 * ms
		_, err := f.q.Acquire(t.Context(), late)
		held, _ := errors.AsType[*redlock.HeldError](err)
		if held == nil || !held.Waiting {
			t.Fatalf("a reader behind the writer: %v, want an error that names the waiting writer", err)
		}
		at := f.now()
		late.Wait = redlock.Forever
		behind := f.wait(f.q, late)
		f.release(l)
		w.wantAfter("the last reader's release", at, 0, soonAfter)
		time.Sleep(10 * ms)
		at = f.now()
		want(t, "the writer's release", w.lease.Release(t.Context()), nil)
		behind.wantAfter("the writer's release", at, 0, soonAfter)

		again := patient
		again.Wait = time.Second
		impatient := f.wait(f.q, again)
		time.Sleep(500 * ms)
		third := f.wait(f.q, late)
		<-impatient.done
		wantErr(t, "the writer's error", impatient.err, redlock.ErrHeld)
		third.wantAfter("end of the writer's wait", impatient.granted, 0, soonAfter)
		behind.lease.BeginRelease()
		third.lease.BeginRelease()
		time.Sleep(100 * ms)
		f.wantNoKeys("in the end")
	})
}

// A request of another kind, or with another number of slots, waits as for an exclusive lock.
func TestKindsExcludeEachOther(t *testing.T) {
	kinds := []redlock.Request{
		{Name: "x"}, {Name: "x", Shared: true}, {Name: "x", Slots: 2}, {Name: "x", Slots: 3}, {Names: []string{"y", "x"}},
	}
	for i, first := range kinds {
		for j, second := range kinds {
			together := i == j && (first.Shared || first.Slots > 0)
			first.TTL, first.Keep = keptLong, true
			wakeTest(t, first, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
				second.TTL = keptLong
				_, err := f.q.Acquire(t.Context(), second)
				switch {
				case together: // but the waiter that waits for x alone comes first
					held, _ := errors.AsType[*redlock.HeldError](err)
					want(t, name("%v beside %v: a client waits", second, first), held != nil && held.Waiting, true)
				default:
					wantErr(t, name("%v beside %v", second, first), err, redlock.ErrHeld)
				}
				at := f.now()
				l.BeginRelease()
				w.wantAfter("release", at, 0, 3*soonAfter)
			})
		}
	}
}
