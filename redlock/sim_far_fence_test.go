package redlock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// unsetClock gives a host the clock of a machine that never got the time.
func unsetClock(o *redlock.Options) {
	o.Wall = func() time.Time { return time.Unix(0, 0) }
}

// aYear returns a fencing token that is more than a year ahead.
func aYear() uint64 { return uint64(time.Now().Add(366 * 24 * time.Hour).UnixMicro()) }

// wantHonest checks that no counter of these nodes, which tell the truth, is far ahead.
func (f *fleet) wantHonest(sims ...*redlocktest.Sim) {
	f.Helper()
	for _, s := range sims {
		for i, item := range s.Do("HGETALL", nodeKey).Array {
			if n, err := strconv.ParseUint(item.Str, 10, 64); i%2 == 1 && err == nil && n > aYear() {
				f.Errorf("a counter of %s is at %d", s.Node().Name, n)
			}
		}
	}
}

// One node of five answers each grant with a counter that is centuries ahead. It has no vote and
// its status says why. The other nodes work as before, for every kind of lock, even on a host
// whose clock is not set. Guards Lane.checkFences; CheckFence.
func TestLyingTokenIsNoVote(t *testing.T) {
	for kind, r := range allKinds {
		t.Run(kind, func(t *testing.T) {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				f.sims[0].Plant(simredis.TokensFarAhead)
				f.delay(each(ms), each(0)) // this node answers first
				for range 12 {
					l := f.acquire(r)
					if l.Fence() > aYear() {
						t.Fatalf("granted with the fencing token %d", l.Fence())
					}
					if l.Name() == "x" && r.Slots == 0 && !r.Shared {
						l = f.passOn(l, r)
					}
					f.release(l)
				}
				f.wantHonest(f.sims[1:]...)
				f.wantState(f.q, 0, redlock.NodeReady, "days ahead of most nodes' clocks", "HDEL redlockd:node epoch")
			}, unsetClock)
		})
	}
}

// A host that believes such a node cannot raise the counters of the other nodes. Its own requests
// fail, and those of other hosts are granted. Guards rare.lua: far.
func TestMisledHostRaisesNoCounters(t *testing.T) {
	for kind, r := range allKinds {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			f.sims[0].Plant(simredis.TokensFarAhead)
			f.delay(each(ms), each(0)) // this node answers first
			believer := f.another()
			defer believer.Close()
			believer.Settle(t.Context())
			for range 3 {
				redlock.BelieveFences(believer)
				if _, err := believer.Acquire(t.Context(), r); err == nil || !strings.Contains(err.Error(), "FAR a fencing token") {
					t.Errorf("the believer, %s: got %v, want FAR", kind, err)
				}
				time.Sleep(20 * ms)
			}
			f.release(f.acquire(r))
			f.wantHonest(f.sims[1:]...)
		})
	}
}

// A token that is far ahead in a record is not written to the nodes. Guards ballot.lua: repair.
func TestFarTokenInRecordRaisesNoCounters(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		r := f.acquire(kept3s).Record()
		r.Fence = 1<<53 - 1<<41
		f.restart(100 * ms)
		l, _ := f.adopt(r)
		forget(f.sims[1])
		time.Sleep(2 * time.Second)
		want(t, "the lease", l.Err(), nil)
		f.wantHonest(f.sims...)
		f.release(l)
	})
}

// Counters are not copied from a node with a counter that is far ahead; other nodes serve instead.
// If too few nodes are left, the node has no vote until an operator decides. Its own counter
// restarts. Guards Lane.checkCounters; epoch.lua.
func TestFarCounterIsNotCopied(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		far, near := strconv.FormatUint(aYear(), 10), strconv.FormatInt(time.Now().Add(100*24*time.Hour).UnixMicro(), 10)
		f.sims[4].Do("HSET", nodeKey, "zz", far)
		every(f.sims[1:4], func(s *redlocktest.Sim) { s.Do("HSET", nodeKey, "zz", near) })
		f.sims[0].Do("HSET", nodeKey, "zz", far)
		f.sims[3].Down()
		f.sims[0].Do("HDEL", nodeKey, "epoch")
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "copied from 3", "there are 2")
		f.wantState(f.q, 4, redlock.NodeReady, "days ahead of most nodes' clocks")
		f.sims[3].Up()
		time.Sleep(2 * beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		want(t, "the counter", f.sims[0].Do("HGET", nodeKey, "zz").Str, near)
	})
}

// If the counter is far ahead on all nodes, none can be copied. It restarts after an operator
// admits the nodes. Guards epoch.lua: FARTHEST.
func TestFarCountersRestart(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims, func(s *redlocktest.Sim) {
			setCounter(s, aYear())
			s.Do("HDEL", nodeKey, "epoch")
		})
		time.Sleep(2 * beat)
		for _, s := range f.sims {
			if err := f.q.Admit(t.Context(), s.Node().Name); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * beat)
		if l := f.acquire(oneTryFor(time.Second)); l.Fence() > aYear() {
			t.Errorf("fencing token %d", l.Fence())
		}
		f.wantHonest(f.sims...)
	})
}

// If the clock of a node is centuries ahead, its tokens are still not believed. "Far ahead" is
// relative to a quorum of the nodes' clocks. Guards Fleet.FenceBound: quorum.
func TestLyingClockMovesNoFenceBound(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		every(f.sims[:2], func(s *redlocktest.Sim) {
			s.StepClock(170 * 365 * 24 * time.Hour)
			s.Do("HSET", nodeKey, counterOfX, strconv.FormatUint(aYear(), 10))
		})
		f.delay(each(ms), each(0)) // these nodes answer first
		time.Sleep(2 * beat)       // their clocks were read
		for range 3 {
			l := f.acquire(oneTry)
			if l.Fence() > aYear() {
				t.Errorf("granted with the fencing token %d", l.Fence())
			}
			f.release(l)
		}
		f.wantHonest(f.sims[2:]...)
		f.wantState(f.q, 0, redlock.NodeReady, "days ahead of most nodes' clocks")
	})
}
