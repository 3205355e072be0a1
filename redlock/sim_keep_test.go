package redlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// crowded has so many on one host want a lock each by itself, in turn, and hold it for
// so long, until stop is called.
func (f *fleet) crowded(q *redlock.Quorum, n int, hold time.Duration, names ...string) (stop func()) {
	var all sync.WaitGroup
	over := make(chan struct{})
	for i := range n * len(names) {
		all.Go(func() {
			time.Sleep(time.Duration(i) * hold / time.Duration(n))
			for !isDone(over) {
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
		close(over)
		all.Wait()
	}
}

// end gives back what was granted.
func (w *waiting) end() {
	if w.lease != nil {
		w.lease.BeginRelease()
	}
}

// several wants all of those names.
func several(names ...string) redlock.Request {
	return redlock.Request{Names: names, TTL: 10 * time.Second, Wait: time.Minute}
}

// Who wants several names, each of which others always want, is granted them soon, and
// leaves nothing behind. Guards op k.
func TestSeveralAreNotStarved(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		stop := f.crowded(other, 3, 20*ms, "x", "y", "z")
		time.Sleep(100 * ms)
		w := f.wait(f.q, several("x", "y", "z"))
		w.wantAfter("asked", f.now(), 0, 2*time.Second)
		w.end()
		stop()
		time.Sleep(100 * ms)
		f.wantNoKeys("nobody wants any")
	})
}

// Where hosts want several names each that overlap, and others want them singly, all
// get on. Guards count: behind.
func TestAllGetOn(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		third := f.another(longLeases)
		defer third.Close()
		third.Settle(t.Context())
		stop := f.crowded(third, 2, 10*ms, "x", "y", "z")
		const turns = 20
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
		if took > time.Minute {
			t.Errorf("4 times %d turns took %v", turns, took)
		}
		before := other.Status().Counts.Grants + third.Status().Counts.Grants
		time.Sleep(time.Second)
		if n := third.Status().Counts.Grants + other.Status().Counts.Grants - before; n < 100 {
			t.Errorf("%d grants in a second to those who want one name", n)
		}
		stop()
	})
}

// keptForSomebody has nodes keep a lock for somebody, who does nothing, for so long.
func keptForSomebody(sims []*redlocktest.Sim, lock string, span time.Duration) {
	somebody := redlock.TokenOf(redlock.Holder{Host: "elsewhere", PID: 42, User: "cron"})
	for _, sim := range sims {
		until := strconv.FormatInt(sim.Now().Add(span).UnixMilli(), 10)
		sim.Do("HSET", nodeKey, "keeps", until)
		sim.Do("SET", "redlock:"+lock+"\x00k", somebody, "PX", strconv.FormatInt(span.Milliseconds(), 10))
	}
}

// Who dies while a lock is kept for him keeps others out for no longer than that lasts;
// and who asks meanwhile is told why.
func TestKeptForADead(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		keptForSomebody(f.sims, "x", 5*time.Second)
		start := f.now()
		_, err := f.q.Acquire(t.Context(), oneTry)
		held, _ := errors.AsType[*redlock.HeldError](err)
		if held == nil || !held.Waiting || held.Shared || held.Holder.Host != "elsewhere" {
			t.Fatalf("got %v (%#v), want that somebody waits", err, held)
		}
		want(t, "the reason", err.Error(), "x: kept for cron on elsewhere (pid 42), who was refused again and again and is next")
		waits := redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever}
		f.wait(f.q, waits).wantAfter("it died", start, 5*time.Second, 5*time.Second+soonAfter)
	})
}

// until waits for what is to be soon.
func (f *fleet) until(what string, is func() bool) {
	f.Helper()
	for end := f.now() + time.Minute; !is(); time.Sleep(ms) {
		if f.now() > end {
			f.Fatalf("%s: not in a minute", what)
		}
	}
}

// Who wants two names, of which one is kept for somebody else, keeps nobody out of the
// other: two such would keep each other out, and all others. Guards count: behind.
func TestKeptForTwo(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		j := f.record()
		l, err := other.Acquire(t.Context(), redlock.Request{Names: []string{"x", "y"}, TTL: keptLong, Keep: true})
		want(t, "the first one", err, nil)
		w := f.wait(f.q, redlock.Request{Names: []string{"x", "y"}, TTL: keptLong / 5, Wait: redlock.Forever})
		f.until("kept for who waits", func() bool { return len(j.of("k")) > 0 })
		keptForSomebody(f.sims[:3], "y", 20*time.Second)
		l.BeginRelease()
		time.Sleep(100 * ms)
		begun := f.now()
		one, err := other.Acquire(t.Context(), redlock.Request{Name: "x", TTL: time.Second, Wait: time.Minute})
		want(t, "who wants only x", err, nil)
		wantWithin(t, "granted after", f.now()-begun, 0, time.Second)
		one.BeginRelease()
		w.wantAfter("somebody's end", begun, 15*time.Second, 25*time.Second)
		w.end()
	})
}

// Who reaches too few nodes to be granted a lock has them keep it for nobody. Guards count:
// held.
func TestNotKeptWithoutQuorum(t *testing.T) {
	twoHosts(t, 3, func(t *testing.T, f *fleet, other *redlock.Quorum) {
		j := f.record()
		l, err := other.Acquire(t.Context(), redlock.Request{Name: "x", TTL: keptLong, Keep: true})
		want(t, "the first one", err, nil)
		w := f.wait(f.q, redlock.Request{Name: "x", TTL: 3 * time.Second, Wait: redlock.Forever})
		f.until("kept for who waits", func() bool { return len(j.of("k")) > 0 })
		every(f.sims[1:], hang)
		f.until("it gives that up", func() bool { return len(j.on(0, "d")) > 0 })
		want(t, "it waits still", isDone(w.done), false)
		want(t, "the node that is left keeps it for somebody", f.sims[0].Do("EXISTS", "redlock:x\x00k").Int, int64(0))
		asked := len(j.on(0, "k"))
		time.Sleep(500 * ms)
		want(t, "asked to meanwhile", len(j.on(0, "k")), asked)
		every(f.sims[1:], resume)
		time.Sleep(ms)
		l.BeginRelease()
		<-w.done
	})
}

// Where nodes do not tell when a lock is free, it is kept for who wants several names only:
// it would be free for longer than it takes others to ask again. Guards count: comes.
func TestKeptWithoutTracking(t *testing.T) {
	twoHosts(t, 5, func(t *testing.T, f *fleet, deafHost *redlock.Quorum) {
		j := f.record()
		l := f.acquire(redlock.Request{Names: []string{"x", "y"}, TTL: keptLong, Keep: true})
		one := f.wait(deafHost, redlock.Request{Name: "x", TTL: 10 * time.Second, Wait: redlock.Forever})
		time.Sleep(10 * time.Second)
		if len(j.of("k")) > 0 || one.tries() < 30 {
			t.Errorf("%d tries, and x was to be kept for who asks 4 times a second", one.tries())
		}
		var all sync.WaitGroup
		two := f.wait(deafHost, redlock.Request{Names: []string{"y", "x"}, TTL: 10 * time.Second, Wait: redlock.Forever})
		f.until("kept for who wants two", func() bool { return len(j.of("k")) > 0 })
		l.BeginRelease()
		for _, w := range []*waiting{one, two} {
			all.Go(func() {
				<-w.done
				w.end()
			})
		}
		all.Wait()
	}, deaf)
}

// A node that does not answer when who waited for a lock has gone is told as soon as it
// does again: until then it would keep the lock for nobody. Guards gives, goesTo.
func TestMarksAreTakenBack(t *testing.T) {
	for what, fault := range map[string]struct{ begin, end func(*redlocktest.Sim) }{
		"hung": {hang, resume}, "down": {down, up}, "its scripts are flushed": {flushScripts, func(*redlocktest.Sim) {}},
	} {
		t.Run(what, func(t *testing.T) {
			wakeTest(t, redlock.Request{Name: "x", TTL: keptLong, Keep: true}, func(t *testing.T, f *fleet, l *redlock.Lease, w *waiting) {
				j := f.record()
				ctx, cancel := context.WithCancel(t.Context())
				var waits sync.WaitGroup
				waits.Go(func() { f.q.Acquire(ctx, redlock.Request{Name: "x", TTL: 5 * time.Second, Wait: redlock.Forever}) })
				f.until("kept for who waits", func() bool { return len(j.of("k")) > 5 })
				mark := func() int64 { return f.sims[1].Do("EXISTS", "redlock:x\x00k").Int }
				want(t, "marks", mark(), 1)
				fault.begin(f.sims[1])
				cancel()
				waits.Wait()
				time.Sleep(time.Second)
				fault.end(f.sims[1])
				time.Sleep(2 * time.Second)
				want(t, "marks in the end", mark(), 0)
				l.BeginRelease()
				<-w.done
			})
		})
	}
}

func flushScripts(s *redlocktest.Sim) { s.Do("SCRIPT", "FLUSH") }
