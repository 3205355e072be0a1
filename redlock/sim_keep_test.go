package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// crowded runs n clients on one host for each name until stop is called. Each one acquires the
// lock and holds it for hold, repeatedly.
func (f *fleet) crowded(q *redlock.Quorum, n int, hold time.Duration, names ...string) (stop func()) {
	var all sync.WaitGroup
	stopped := make(chan struct{})
	for i := range n * len(names) {
		all.Go(func() {
			time.Sleep(time.Duration(i) * hold / time.Duration(n))
			for !isDone(stopped) {
				l, err := q.Acquire(f.Context(), redlock.Request{Name: names[i%len(names)], TTL: 10 * time.Second, Wait: redlock.Forever})
				if err != nil {
					f.Error(err)
					return
				}
				time.Sleep(hold)
				l.BeginRelease()
			}
		})
	}
	return func() {
		close(stopped)
		all.Wait()
	}
}

// end releases the lease, if there is one.
func (w *waiting) end() {
	if w.lease != nil {
		w.lease.BeginRelease()
	}
}

// several returns a request for all of these names.
func several(names ...string) redlock.Request {
	return redlock.Request{Names: names, TTL: 10 * time.Second, Wait: time.Minute}
}

// Other clients always want each of several names. A client that wants all of them still gets
// them soon, and leaves no keys behind. Guards op k.
func TestSeveralAreNotStarved(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		stop := f.crowded(other, 3, 20*ms, "x", "y", "z")
		time.Sleep(100 * ms)
		w := f.wait(f.q, several("x", "y", "z"))
		w.wantAfter("request for all names", f.now(), 0, 2*time.Second)
		w.end()
		stop()
		time.Sleep(4 * time.Second) // the nodes' queues and hosts expire: HOST_TTL of queue.lua
		f.wantNoKeys("when all clients have stopped")
	})
}

// If hosts want overlapping sets of names, and other clients want single names, all make
// progress. Guards acquisition.stand.
func TestOverlappingNamesMakeProgress(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		third := f.another(longLeases)
		defer third.Close()
		third.Settle(t.Context())
		stop := f.crowded(third, 2, 10*ms, "x", "y", "z")
		turns, _ := thinned(10, 0, 5)
		var all sync.WaitGroup
		for i, names := range [][]string{{"x", "y"}, {"y", "x"}, {"z", "y"}, {"x", "z"}} {
			all.Go(func() {
				q := []*redlock.Quorum{f.q, other}[i%2]
				for range turns {
					l, err := q.Acquire(t.Context(), several(names...))
					if err != nil {
						t.Errorf("%v: %v", names, err)
						return
					}
					time.Sleep(10 * ms)
					l.BeginRelease()
				}
			})
		}
		began := f.now()
		all.Wait()
		took := f.now() - began
		t.Logf("4 times %d turns took %v", turns, took)
		if took > 30*time.Second {
			t.Errorf("4 times %d turns took %v, want at most 30 s", turns, took)
		}
		before := other.Status().Counts.Grants + third.Status().Counts.Grants
		time.Sleep(time.Second)
		if n := third.Status().Counts.Grants + other.Status().Counts.Grants - before; n < 100 {
			t.Errorf("%d grants in a second to clients that want one name, want at least 100", n)
		}
		stop()
	})
}

// nested takes x and then y and releases both, repeatedly, until stop is called. stop returns the
// number of rounds.
func (f *fleet) nested(q *redlock.Quorum) (stop func() (rounds int)) {
	stopped := make(chan struct{})
	var all sync.WaitGroup
	rounds := 0
	all.Go(func() {
		for !isDone(stopped) {
			var both [2]*redlock.Lease
			for i, name := range []string{"x", "y"} {
				l, err := q.Acquire(f.Context(), redlock.Request{Name: name, TTL: 10 * time.Second, Wait: redlock.Forever})
				if err != nil {
					f.Errorf("%s within x: %v", name, err)
					return
				}
				both[i] = l
				time.Sleep(10 * ms)
			}
			both[1].BeginRelease()
			both[0].BeginRelease()
			rounds++
		}
	})
	return func() int {
		close(stopped)
		all.Wait()
		return rounds
	}
}

// One client holds one name and wants a second. Another client wants both and waits for the first
// name. Its turn for the second name excludes the first client neither for long nor often.
// Guards acquisition.stand.
func TestLongTurnIsNoDeadlock(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		third := f.another(longLeases)
		defer third.Close()
		third.Settle(t.Context())
		stopOne, stopTwo := f.nested(f.q), f.nested(other)
		stopped := make(chan struct{})
		var all sync.WaitGroup
		turns := 0
		all.Go(func() {
			for !isDone(stopped) {
				l, err := third.Acquire(t.Context(), several("x", "y"))
				if err != nil {
					t.Errorf("both: %v", err)
					return
				}
				turns++
				time.Sleep(10 * ms)
				l.BeginRelease()
			}
		})
		seconds, _ := thinned(5, 0, 5)
		time.Sleep(time.Duration(seconds) * time.Second)
		close(stopped)
		one, two := stopOne(), stopTwo()
		all.Wait()
		t.Logf("%d and %d rounds of x and then y, %d turns of both", one, two, turns)
		if one < 5*seconds || two < 5*seconds || turns < seconds {
			t.Errorf("in %d s %d and %d rounds of x and then y, %d turns of both; want at least 5, 5 and 1 a second", seconds, one, two, turns)
		}
	})
}

// If a client holds x for long, y is still granted: the nodes do not keep y for
// a client that wants both. Without that client, y is granted 180 times. Guards the order of the names in
// acquisition.stand.
func TestNoLongTurnBehindLongHolder(t *testing.T) {
	for _, names := range [][]string{{"x", "y"}, {"y", "x"}} {
		twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
			l := f.acquire(redlock.Request{Name: "x", TTL: keptLong, Keep: true})
			stop := f.crowded(other, 3, 10*ms, "y")
			w := f.wait(f.q, several(names...))
			time.Sleep(time.Second)
			before := other.Status().Counts.Grants
			halves, _ := thinned(4, 0, 4)
			time.Sleep(time.Duration(halves) * 500 * ms)
			grants, least := other.Status().Counts.Grants-before, uint64(halves)*170/4
			t.Logf("%v: y was granted %d times in %d halves of a second", names, grants, halves)
			if grants < least {
				t.Errorf("%v: y was granted %d times while a client that wants both waited for x, want at least %d", names, grants, least)
			}
			l.BeginRelease()
			w.wantAfter("release of x", f.now(), 0, 5*time.Second)
			w.end()
			stop()
		})
	}
}

// until waits until is returns true, for at most a minute.
func (f *fleet) until(what string, is func() bool) {
	f.Helper()
	for end := f.now() + time.Minute; !is(); time.Sleep(ms) {
		if f.now() > end {
			f.Fatalf("%s: not within a minute", what)
		}
	}
}

// If a node does not answer when a waiter ends, the host removes the waiter's entry as soon as the
// node answers again. Otherwise the node would exclude readers for nobody. Guards Call.IsRelease,
// markSent.
func TestEntriesAreRemoved(t *testing.T) {
	for what, fault := range map[string]struct{ begin, end func(*redlocktest.Sim) }{
		"hung": {hang, resume}, "down": {down, up}, "its scripts are flushed": {flushScripts, func(*redlocktest.Sim) {}},
	} {
		t.Run(what, func(t *testing.T) {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				l := f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true, Shared: true})
				ctx, cancel := context.WithCancel(t.Context())
				var waits sync.WaitGroup
				waits.Go(func() { f.q.Acquire(ctx, redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever}) })
				entries := func() int64 { return f.sims[1].Do("EXISTS", "redlock:x\x00q").Int }
				f.until("the node has the entry", func() bool { return entries() == 1 })
				fault.begin(f.sims[1])
				cancel()
				waits.Wait()
				time.Sleep(time.Second)
				fault.end(f.sims[1])
				time.Sleep(2 * time.Second)
				want(t, "entries in the end", entries(), 0)
				f.release(l)
			})
		})
	}
}

func flushScripts(s *redlocktest.Sim) { s.Do("SCRIPT", "FLUSH") }
