package redlock_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// counter returns a node's fencing counter for redlock:x.
func counter(s *redlocktest.Sim) uint64 {
	n, _ := strconv.ParseUint(s.Do("HGET", nodeKey, counterOfX).Str, 10, 64)
	return n
}

func setCounter(s *redlocktest.Sim, n uint64) {
	s.Do("HSET", nodeKey, counterOfX, strconv.FormatUint(n, 10))
}

// Each grant has a larger fencing token than all earlier ones, in one round trip. A quorum of
// nodes has a counter of that value. Guards ballot.lua: acquire; agreeOnFence.
func TestFencesGrow(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		j := f.record()
		f.delay(each(ms), each(ms))
		last := uint64(0)
		for range 20 {
			begin := f.now()
			l := f.acquire(oneTry)
			want(t, "took", f.now()-begin, 6*ms) // the third node's answer; f.acquire waits for the rest
			if l.Fence() <= last {
				t.Fatalf("fencing token %d after %d", l.Fence(), last)
			}
			last = l.Fence()
			f.release(l)
		}
		want(t, "write-backs", len(j.of("f")), 0)
		want(t, "write-backs counted", f.q.Status().Counts.WriteBacks, uint64(0))
		want(t, "grants counted", f.q.Status().Counts.Grants, uint64(20))
	})
}

// If the nodes disagree, the largest token is written back to a quorum. That takes one more round
// trip, once. Guards agreeOnFence; ballot.lua: fence.
func TestFenceIsWrittenBack(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		setCounter(f.sims[1], ahead)
		f.delay(each(ms), each(ms))
		begin := f.now()
		l, err := f.q.Acquire(t.Context(), oneTry)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "took two round trips", f.now()-begin, 12*ms)
		want(t, "token", l.Fence(), ahead+1)
		time.Sleep(20 * ms)
		for i, sim := range f.sims {
			if got := counter(sim); got != l.Fence() {
				t.Errorf("the counter of node %d is %d, want %d", i, got, l.Fence())
			}
		}
		f.release(l)
		begin = f.now()
		l, err = f.q.Acquire(t.Context(), oneTry)
		want(t, "error", err, nil)
		want(t, "the next grant took one round trip", f.now()-begin, 6*ms)
		want(t, "its token", l.Fence(), ahead+2)
		want(t, "write-backs counted", f.q.Status().Counts.WriteBacks, uint64(1))
	})
}

// Two readers whose requests overlap may get the same token, as they may work at the same time. A
// grant after both has a larger token. So has a grant that a reader requests after one of the two
// was granted. Guards agreeOnFence.
func TestReadersMayHaveOneToken(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		reader := redlock.Request{Name: "x", TTL: time.Second, Shared: true}
		other := f.another()
		defer other.Close()
		other.Settle(t.Context())
		time.Sleep(100 * ms) // the other host listens, too
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		every(f.sims, func(s *redlocktest.Sim) { setCounter(s, ahead) })
		hang(f.sims[2])
		var slow atomic.Int64 // the node that gets the request later
		f.delay(func(node int) time.Duration { return map[bool]time.Duration{node == int(slow.Load()): 10 * ms}[true] }, func(int) time.Duration { return 20 * ms })
		first := f.start(t.Context(), reader)
		time.Sleep(ms)
		slow.Store(1)
		second, err := other.Acquire(t.Context(), reader)
		want(t, "error of the second reader", err, nil)
		one, err := first.wait()
		want(t, "error of the first reader", err, nil)
		want(t, "token of the first", one.Fence(), ahead+2)
		want(t, "token of the second", second.Fence(), ahead+2)
		third := f.acquire(reader)
		want(t, "token of a third reader after them", third.Fence(), ahead+3)
	})
}

// A node counts for the write-back only if it still has our lock. Here the lock disappears
// meanwhile on three nodes of five. If it disappears on two, the grant stands. Guards ballot.lua:
// fence; refusal.
func TestWriteBackNeedsTheLock(t *testing.T) {
	for gone, granted := range map[int]bool{2: true, 3: false} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			setCounter(f.sims[4], uint64(time.Now().Add(time.Hour).UnixMicro()))
			f.delay(func(int) time.Duration { return 10 * ms }, func(node int) time.Duration { return time.Duration(5-node) * ms })
			time.AfterFunc(20*ms, func() { every(f.sims[:gone], forget) }) // the attempt is answered at 13 ms, and the write-back arrives at 23 ms
			l, err := f.q.Acquire(t.Context(), oneTry)
			if granted {
				if err != nil {
					t.Fatal(err)
				}
				f.release(l)
				return
			}
			wantErr(t, name("lock gone on %d nodes", gone), err, redlock.ErrNoQuorum)
			if !strings.Contains(err.Error(), "3 nodes granted the lock too late, or lost it") {
				t.Errorf("got %v, want the number of nodes on which the lock is gone", err)
			}
			time.Sleep(50 * ms)
			f.wantNoKeys("after the attempt")
		})
	}
}

// The validity is checked again after the write-back. Guards attempt.isWon.
func TestWriteBackTakesTooLong(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		setCounter(f.sims[0], uint64(time.Now().Add(time.Hour).UnixMicro()))
		f.delay(func(int) time.Duration { return 25 * ms }, func(node int) time.Duration { return 24*ms + time.Duration(node) })
		_, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 100 * ms}) // the lease is valid for 97 ms, and the answers take 98 ms
		var e *redlock.NoQuorumError
		if !errors.As(err, &e) || len(e.Failed) == 0 || e.Failed[0].Failure != redlock.FailedLate {
			t.Errorf("got %v, want that it came too late", err)
		}
		time.Sleep(100 * ms)
		f.wantNoKeys("after the attempt")
	})
}

// The clock of one host does not push the counters ahead. If a proposal is too far ahead, the
// counter increases by one. Guards ballot.lua: AHEAD.
func TestProposalsAreBounded(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		begin := counter(f.sims[0])
		wrong := f.another(func(o *redlock.Options) { o.Wall = func() time.Time { return time.Now().AddDate(20, 0, 0) } })
		defer wrong.Close()
		wrong.Settle(t.Context())
		l, err := wrong.Acquire(t.Context(), oneTry)
		want(t, "error", err, nil)
		want(t, "token of a host 20 years ahead", l.Fence(), begin+1)
		want(t, "release", l.Release(t.Context()), nil)
		past := f.another(func(o *redlock.Options) { o.Wall = func() time.Time { return time.Unix(-5, 0) } })
		defer past.Close()
		past.Settle(t.Context())
		l, err = past.Acquire(t.Context(), oneTry)
		want(t, "error", err, nil)
		want(t, "token of a host before 1970", l.Fence(), begin+2)
	})
}

// Two daemons whose clocks differ by 5 ms write back in less than 1 % of uncontended acquires.
// Guards the proposals and the 1,024 counters.
func TestWriteBacksAreRare(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		f.delay(func(int) time.Duration { return rand.N(300 * time.Microsecond) }, func(int) time.Duration { return rand.N(300 * time.Microsecond) })
		behind := f.another(func(o *redlock.Options) { o.Wall = func() time.Time { return time.Now().Add(-5 * ms) } })
		defer behind.Close()
		behind.Settle(t.Context())
		const workers = 8
		rounds, _ := thinned(250, 0, 4)
		var wg sync.WaitGroup
		for w := range workers {
			q := []*redlock.Quorum{f.q, behind}[w%2]
			wg.Go(func() {
				for i := range rounds {
					l, err := q.Acquire(t.Context(), redlock.Request{Name: name("%d/%d", w, i%20), TTL: time.Second, Wait: time.Second})
					if err == nil {
						err = l.Release(t.Context())
					}
					want(t, "error", err, nil)
				}
			})
		}
		wg.Wait()
		back := f.q.Status().Counts.WriteBacks + behind.Status().Counts.WriteBacks
		t.Logf("%d write-backs in %d acquires", back, workers*rounds)
		if back*100 >= uint64(workers*rounds) {
			t.Errorf("%d write-backs in %d acquires, want less than 1 %%", back, workers*rounds)
		}
	})
}

// A node whose counter has reached its limit fails. A counter out of range is not believed. Guards
// ballot.lua: LIMIT; IsFencedGrant.
func TestCounterAtItsLimit(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims[:2], func(s *redlocktest.Sim) { setCounter(s, 1<<53-1<<40) })
		_, err := f.q.Acquire(t.Context(), oneTry)
		wantNoQuorum(t, err, redlock.FailedError, "a", "b")
		if !strings.Contains(err.Error(), "at its end") {
			t.Errorf("got %v, want it to say that the counter is at its end", err)
		}
		synctest.Wait()
		f.wantNoKeys("after the attempt")
	})
}
