package redlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// An Extend that failed changes nothing, even if nodes answer later. The lease keeps its deadline
// and its ttl. Guards countRepliesLocked: byClient.
func TestExtendAnsweredLate(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second})
		deadline := l.Deadline()
		f.delay(func(int) time.Duration { return 0 }, func(int) time.Duration { return 60 * ms })
		wantErr(t, "Extend", l.Extend(t.Context(), 20*time.Second), redlock.ErrNoQuorum)
		time.Sleep(100 * ms)
		f.wantHeld(l, seen)
		want(t, "deadline", l.Deadline(), deadline)
		want(t, "ttl", l.TTL(), 3*time.Second)
	})
}

// If a client extends a lease while the host is paused, the lease ages by the pause once, not
// twice, like the other leases. Guards Lease.ageLocked: missed.
func TestExtendOverPause(t *testing.T) {
	const ttl, nodeTimeout, pauseFor = 20 * time.Second, 2 * time.Second, 5 * time.Second
	long := func(o *redlock.Options) { o.MaxTTL = ttl }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(ttl + 3*beat)
		var late atomic.Int64
		paused, pause := f.pausedHost(long, hearsLate(&late, 2, 4), func(o *redlock.Options) { o.NodeTimeout = nodeTimeout })
		time.Sleep(2*beat + 500*ms)
		foreign(f.sims[3:4], "x", time.Hour)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl})
		want(t, "error", err, nil)
		before := l.Deadline()
		late.Store(int64(10 * time.Second)) // two of the four nodes that hold the lock answer late
		time.AfterFunc(10*ms, func() { pause(pauseFor) })
		wantErr(t, "Extend", l.Extend(t.Context(), 0), redlock.ErrNoQuorum)
		time.Sleep(50 * ms)
		want(t, "clock jumps", paused.Status().Counts.ClockJumps, uint64(1))
		wantWithin(t, "aged by", before-l.Deadline(), pauseFor, pauseFor+100*ms)
	}, withQuarantine, long)
}

// The nodes get whole milliseconds, so the lease and its record have whole milliseconds too.
// Guards Extend: Truncate.
func TestExtendByFractionOfMillisecond(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, _ := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second})
		want(t, "Extend", l.Extend(t.Context(), 5*time.Second+ms/2), nil)
		want(t, "ttl", l.TTL(), 5*time.Second)
		record := l.Record()
		f.restart(0)
		f.adopt(record)
	})
}

// The ttl that a client set stays, even if the keeper sent an extension with the old one before
// the new one was confirmed. Guards extended: changes.
func TestExtendBesideKeeper(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		f.delay(each(0), func(int) time.Duration { return 20 * ms })
		f.at(l.Since(), time.Second-10*ms)
		want(t, "Extend", l.Extend(t.Context(), 10*time.Second), nil) // the keeper sends its extension meanwhile
		time.Sleep(100 * ms)
		want(t, "ttl", l.TTL(), 10*time.Second)
		f.wantHeld(l, seen)
	})
}

// If nodes refuse to extend a lease without Keep, its loss has no further cause. No extension was
// overdue, because only the client extends it. Guards finish: kept.
func TestCauseOfLossAtExtend(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second})
		f.at(l.Since(), 2*time.Second)
		every(f.sims, forget)
		wantErr(t, "Extend", l.Extend(t.Context(), 0), redlock.ErrLost)
		f.wantLost(l, seen, l.Since()+2*time.Second, redlock.LostQuorum)
		want(t, "cause", l.Cause(), nil)
	})
}

// The next successful extension clears the cause of a failed one. Guards extended:
// cause, asked.
func TestExtensionClearsCause(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		f.at(l.Since(), 900*ms)
		every(f.sims, hang)
		f.at(l.Since(), 1200*ms)
		wantErr(t, "cause while they hang", l.Cause(), redlock.ErrNoQuorum)
		every(f.sims, resume)
		f.at(l.Since(), 1800*ms)
		f.wantHeld(l, seen)
		want(t, "cause", l.Cause(), nil)
	})
}

// Keep also works for a lease that was granted without it: the lease is extended at once. Guards
// Lease.Keep: watch.
func TestKeep(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second})
		f.at(l.Since(), 2*time.Second)
		l.Keep()
		time.Sleep(10 * ms)
		wantWithin(t, "validity", l.Validity(), 3*time.Second-50*ms, 3*time.Second)
		f.at(l.Since(), time.Minute)
		f.wantHeld(l, seen)
		f.release(l)
	})
}

// A lease with a limited holding time is not extended any more when its deadline is that limit:
// its keys would outlast the lease. Guards extendable.
func TestNoExtensionAtMax(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		j := f.record()
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second, Max: 4500 * ms, Keep: true})
		end := l.Since() + 4500*ms
		f.at(end, -10*ms)
		want(t, "extensions", len(j.on(0, "e")), 2) // at 1 s, and at 2 s up to the limit
		f.wantLost(l, seen, end-600*ms, redlock.LostMax)
	})
}

// After LoseSilently, a lease is not extended. It is released at its deadline. Guards LoseSilently:
// forget.
func TestLoseSilently(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		j := f.record()
		l.LoseSilently()
		f.at(l.Deadline(), -1)
		want(t, "keys before the deadline", len(f.keys()), 3)
		f.at(l.Deadline(), ms)
		f.wantNoKeys("after the deadline")
		want(t, "extensions", len(j.of("e")), 0)
		want(t, "losses reported", seen.count.Load(), int32(0))
	})
}

// If nodes fail a second time, the first retry comes as soon as it did the first time. Guards
// keeper.confirmed: failedTries.
func TestRetryDelayRestarts(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		for range 2 {
			for before := l.Deadline(); l.Deadline() == before; { // until the lease is extended
				time.Sleep(ms)
			}
			begin, j := f.now(), f.record()
			every(f.sims[:2], faults["loading"].begin)
			f.at(begin, 2*time.Second)
			tries := j.on(2, "e")
			if len(tries) < 5 {
				t.Fatalf("%d attempts to extend, want at least 5", len(tries))
			}
			wantWithin(t, "between the first two", tries[1].at-tries[0].at, 15*ms, 45*ms)
			every(f.sims[:2], faults["loading"].end)
			f.wantHeld(l, seen)
		}
	})
}

// An extension ends when all nodes have answered and no quorum is possible any more. Guards
// extension.count: answered.
func TestExtendUndecided(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second})
		every(f.sims[:2], forget)
		f.sims[2].Refuse("LOADING")
		begin := f.now()
		wantNoQuorum(t, l.Extend(t.Context(), 0), redlock.FailedError, "c")
		want(t, "took", f.now()-begin, 0)
		f.wantHeld(l, seen)
	})
}
