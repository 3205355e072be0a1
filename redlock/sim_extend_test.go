package redlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// An Extend that failed has changed nothing, whatever the nodes answer later: the lease
// is as valid as before, and has the ttl that it had. Guards countLate: changes.
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

// A lease that its client was extending while its host was paused is so much older once,
// not twice: it is among those that are aged. Guards ageMissed: changes.
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
		late.Store(int64(10 * time.Second)) // two of the four that hold it
		time.AfterFunc(10*ms, func() { pause(pauseFor) })
		wantErr(t, "Extend", l.Extend(t.Context(), 0), redlock.ErrNoQuorum)
		time.Sleep(50 * ms)
		want(t, "clock jumps", paused.Status().Counts.ClockJumps, uint64(1))
		wantWithin(t, "aged by", before-l.Deadline(), pauseFor, pauseFor+100*ms)
	}, withQuarantine, long)
}
