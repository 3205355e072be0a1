package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// pausedHost returns a Quorum and a function that pauses its host. The function sets the clock
// back, which has the same effect.
func (f *fleet) pausedHost(change ...func(*redlock.Options)) (q *redlock.Quorum, pause func(time.Duration)) {
	f.Helper()
	var missed atomic.Int64
	clock := func(o *redlock.Options) {
		o.Clock = func() time.Duration { return f.now() - time.Duration(missed.Load()) }
	}
	q = f.another(append([]func(*redlock.Options){withQuarantine, clock}, change...)...)
	f.Cleanup(q.Close)
	q.Settle(f.Context())
	return q, func(d time.Duration) { missed.Add(int64(d)) }
}

// A paused host never makes other hosts exclude nodes, in whatever order it reaches the nodes
// again. Guards clockJumps.judge.
func TestPausedHostReachesNodesLater(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, apart := range []time.Duration{0, 700 * ms, 3 * time.Second} {
			admittedTest(t, n, func(t *testing.T, f *fleet) {
				paused, pause := f.pausedHost()
				time.Sleep(3 * beat)
				every(f.sims, down)
				pause(10 * time.Second)
				for _, s := range f.sims {
					time.Sleep(apart)
					s.Up()
				}
				time.Sleep(3 * beat)
				want(t, name("%d nodes, %v apart: admissions withdrawn by the paused host", n, apart), paused.Status().Counts.Withdrawals, uint64(0))
				want(t, "ready for the other host", f.q.Status().Ready, n)
			})
		}
	}
}

// If a node's clock is stepped, the host blames the node, however distant all nodes are. The
// uncertainty of the other clocks is smaller than the step. A host that blamed itself would
// shorten all of its leases by the step. Guards nodeClock.keptTimeSince: jump.
func TestDistantNodeJumps(t *testing.T) {
	for _, step := range []time.Duration{90 * time.Second, -90 * time.Second, 200 * ms} {
		admittedTest(t, 5, func(t *testing.T, f *fleet) {
			way := func(int) time.Duration { return 5*ms + rand.N(5*ms) }
			f.delay(way, way)
			held := f.acquire(redlock.Request{Name: "x", TTL: longest, Keep: true})
			time.Sleep(2 * beat)
			f.sims[0].StepClock(step)
			time.Sleep(beat + 500*ms)
			want(t, name("stepped by %v: admissions withdrawn", step), f.q.Status().Counts.Withdrawals, uint64(1))
			want(t, name("stepped by %v: the lease", step), held.Err(), nil)
		})
	}
}

// A node that was paused together with the host is no witness against another node: the two may
// run on one machine. Guards clockJumps.judge: two witnesses.
func TestPausedWithANode(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		paused, pause := f.pausedHost()
		time.Sleep(3 * beat)
		f.sims[2].Down()
		time.Sleep(2 * beat)
		pause(10 * time.Second)
		f.sims[1].StepClock(-10 * time.Second)
		time.Sleep(3 * beat)
		want(t, "the pause was noticed", paused.Status().Counts.ClockJumps > 0, true)
		f.wantState(f.q, 0, redlock.NodeReady) // other hosts still count its vote
		want(t, "only the paused host quarantines it", f.nodeStatus(paused, 0).OnlyHere, true)
	})
}

// A host whose clock runs at a wrong rate may have no quorum itself, but the nodes stay ready for
// other hosts. Guards keptTimeSince.
func TestHostOfWrongRate(t *testing.T) {
	rates, _ := thinned(3, 0, 3)
	for _, rate := range []float64{0.9895, 0.95, 1.011}[:rates] {
		for _, near := range []bool{true, false} {
			admittedTest(t, 5, func(t *testing.T, f *fleet) {
				way := func(node int) time.Duration { return time.Duration(node*node)*ms/2 + rand.N(ms) }
				if near {
					way = func(int) time.Duration { return 100*time.Microsecond + rand.N(400*time.Microsecond) }
				}
				f.delay(way, way)
				begin := f.now()
				wrong := f.another(withQuarantine, func(o *redlock.Options) {
					o.MaxTTL = 30 * time.Second
					o.Clock = func() time.Duration { return begin + time.Duration(float64(f.now()-begin)*rate) }
				})
				defer wrong.Close()
				for range 90 {
					time.Sleep(beat)
					if ready := f.q.Status().Ready; ready < 5 {
						t.Fatalf("rate %v, near %v: %d nodes are ready for a host with a correct clock, want 5", rate, near, ready)
					}
				}
				want(t, fmt.Sprintf("rate %v, near %v: jumps noticed", rate, near), wrong.Status().Counts.ClockJumps > 0, true)
			})
		}
	}
}

// A second pause during the quarantine for the first one also ages the leases. Guards
// judgeAdmitted: the clock is watched before noVoteHereUntil.
func TestSecondPause(t *testing.T) {
	long := func(o *redlock.Options) { o.MaxTTL = 20 * time.Second }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(25 * time.Second)
		paused, pause := f.pausedHost(long)
		time.Sleep(3 * beat)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 20 * time.Second, Guard: 10 * ms, Keep: true})
		want(t, "error", err, nil)
		granted := f.now()
		pause(600 * ms)
		f.at(granted, 12*time.Second)
		pause(3 * time.Second)
		f.at(granted, 20*time.Second+500*ms)
		_, err = f.q.Acquire(t.Context(), oneTryFor(time.Second))
		want(t, "the other host's Acquire", err, nil)
		wantErr(t, "the first holder", l.Err(), redlock.ErrLost)
	}, withQuarantine, long)
}

// lateConn is a connection whose answers arrive late.
type lateConn struct {
	redlock.Conn
	late *atomic.Int64
}

func (c lateConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	err := c.Conn.Do(ctx, group, replies)
	time.Sleep(time.Duration(c.late.Load()))
	return err
}

// hearsLate makes the answers of these nodes arrive late at a Quorum.
func hearsLate(late *atomic.Int64, nodes ...int) func(*redlock.Options) {
	return func(o *redlock.Options) {
		for _, i := range nodes {
			wrapConns(&o.Nodes[i], func(c redlock.Conn) redlock.Conn { return redlocktest.WithDo(c, lateConn{c, late}.Do) })
		}
	}
}

// If a host was paused during an extension, the lease is shorter by the pause, whether the nodes
// confirm the extension or not. Neither the earlier nor the new deadline may come from a clock
// that stood still. Guards keeper.keep: ageMissed; Lease.extended: missed.
func TestExtensionOverPause(t *testing.T) {
	const ttl, nodeTimeout, pauseFor = 8 * time.Second, 2 * time.Second, 5 * time.Second
	long := func(o *redlock.Options) { o.MaxTTL = 10 * time.Second }
	for _, answer := range []time.Duration{1700 * ms, 10 * time.Second} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			time.Sleep(13 * time.Second)
			var late atomic.Int64
			paused, pause := f.pausedHost(long, hearsLate(&late, 2, 4), func(o *redlock.Options) { o.NodeTimeout = nodeTimeout })
			time.Sleep(2*beat + 500*ms)
			foreign(f.sims[3:4], "x", 30*time.Second)
			l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl, Guard: 10 * ms, Keep: true})
			if err != nil {
				t.Fatal(err)
			}
			granted := f.now()
			before := l.Deadline()
			f.at(granted, ttl/3-50*ms)
			late.Store(int64(answer))
			f.at(granted, ttl/3+10*ms) // the extension is in progress
			pause(pauseFor)
			f.at(granted, ttl/3+min(answer, nodeTimeout)+50*ms)
			want(t, "clock jumps", paused.Status().Counts.ClockJumps > 0, true)
			want(t, name("answered after %v: the deadline has changed", answer), l.Deadline() != before, true)
			if latest := granted + ttl/3 + ttl - pauseFor; l.Deadline() > latest {
				t.Errorf("answered after %v: the lease's deadline is %v by its host's clock, but the keys expire at %v", answer, l.Deadline(), latest)
			}
		}, withQuarantine, long)
	}
}

// If a host was paused during an attempt, the granted lease is shorter by the pause. Guards
// attempt.age.
func TestBallotOverPause(t *testing.T) {
	long := func(o *redlock.Options) { o.MaxTTL = 10 * time.Second }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(13 * time.Second)
		var late atomic.Int64
		paused, pause := f.pausedHost(long, hearsLate(&late, 2, 4), func(o *redlock.Options) { o.NodeTimeout = 2 * time.Second })
		time.Sleep(2*beat + 500*ms)
		foreign(f.sims[3:4], "x", 3*time.Second)
		late.Store(int64(1700 * ms))
		asked := f.now()
		time.AfterFunc(10*ms, func() { pause(5 * time.Second) })
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: 8 * time.Second, Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		late.Store(0)
		f.at(asked, 9*time.Second)
		_, err = f.q.Acquire(t.Context(), oneTryFor(time.Second))
		want(t, "the other host's Acquire", err, nil)
		wantErr(t, "the first holder", l.Err(), redlock.ErrLost)
	}, withQuarantine, long)
}

// A host that learns late of an earlier loss does not treat the next one as a total loss. Guards
// noteCounterLoss.
func TestLossIsNoticedLate(t *testing.T) {
	for phase := time.Duration(0); phase < beat; phase += 50 * ms {
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			var late atomic.Int64
			slow := f.another(withQuarantine, hearsLate(&late, 0), func(o *redlock.Options) { o.NodeTimeout = 200 * ms })
			defer slow.Close()
			slow.Settle(t.Context())
			time.Sleep(phase)
			f.sims[0].Flush()
			f.q.Acquire(t.Context(), redlock.Request{Name: "y", TTL: 200 * ms}) // makes the host look at the node
			begin := f.now()
			late.Store(int64(300 * ms))
			f.at(begin, longest)
			for f.nodeStatus(f.q, 0).State != redlock.NodeReady {
				time.Sleep(5 * ms)
			}
			f.sims[2].Down()
			f.acquire(redlock.Request{Name: "x", TTL: time.Second})
			f.sims[1].Flush()
			slow.Acquire(t.Context(), redlock.Request{Name: "y", TTL: 200 * ms})
			time.Sleep(500 * ms)
			late.Store(0)
			f.q.Close()
			f.sims[0].Down()
			time.Sleep(longest + 3*beat)
			f.wantState(slow, 1, redlock.NodeQuarantined)
		})
	}
}

// If a host notices that it was paused, a lease is lost earlier by the pause, even if its timer
// was set before and nobody extends it. (This lease was extended after the pause. It ages too,
// which is harmless: the host does not know when the pause was.) Guards keeper.age: onTimer.
func TestLossAfterPause(t *testing.T) {
	const ttl, guard, pauseFor = 20 * time.Second, time.Second, 5 * time.Second
	long := func(o *redlock.Options) { o.MaxTTL = ttl }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(ttl + 3*beat)
		paused, pause := f.pausedHost(long)
		time.Sleep(3 * beat)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl, Guard: guard})
		want(t, "error", err, nil)
		time.Sleep(6*beat + 500*ms)
		pause(pauseFor)
		want(t, "Extend", l.Extend(t.Context(), 0), nil)
		before := l.Deadline()
		<-l.Lost()
		wantWithin(t, "aged by", before-l.Deadline(), pauseFor, pauseFor+100*ms)
		wantWithin(t, "delay of the loss by its host's clock", f.now()-pauseFor-(l.Deadline()-guard), 0, ms)
	}, withQuarantine, long)
}

// If a lease is lost because its host was paused, and not because an extension failed, the cause
// says so. Otherwise an operator would look for a fault of the nodes. Guards Lease.ageLocked: cause.
func TestLossAfterPauseSaysWhy(t *testing.T) {
	const ttl, pauseFor = 5 * time.Second, 10 * time.Second
	long := func(o *redlock.Options) { o.MaxTTL = ttl }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(ttl + 3*beat)
		paused, pause := f.pausedHost(long)
		time.Sleep(3 * beat)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl, Keep: true})
		want(t, "error", err, nil)
		time.Sleep(2 * ttl)
		pause(pauseFor)
		<-l.Lost()
		want(t, "reason", l.Reason(), redlock.LostQuorum)
		if cause := fmt.Sprint(l.Cause()); !strings.Contains(cause, "moved by 10s against this host's") {
			t.Errorf("the cause is %s, want it to say that this host was paused", cause)
		}
	}, withQuarantine, long)
}

// If half of the other nodes were paused together with the host, these are no witnesses against a
// node: a majority is required. Guards clockJumps.judge: witnesses.
func TestPausedWithTwoNodes(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		paused, pause := f.pausedHost()
		time.Sleep(3*beat + 500*ms) // away from the heartbeats
		f.q.Close()                 // for other hosts these two nodes have jumped
		pause(10 * time.Second)
		every(f.sims[3:], func(s *redlocktest.Sim) { s.StepClock(-10 * time.Second) })
		time.Sleep(3 * beat)
		want(t, "the pause was noticed", paused.Status().Counts.ClockJumps > 0, true)
		for i := range 3 {
			want(t, name("only the paused host quarantines node %d", i), f.nodeStatus(paused, i).OnlyHere, true)
		}
	})
}

// If most of the other nodes kept time, two nodes that step together are judged as stepped. A
// judged node does not count among its others. Guards clockJumps.judge: others.
func TestTwoNodesJump(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		held := f.acquire(redlock.Request{Name: "x", TTL: longest, Keep: true})
		f.sims[4].Down()
		time.Sleep(2 * beat)
		every(f.sims[:2], func(s *redlocktest.Sim) { s.StepClock(90 * time.Second) })
		time.Sleep(beat + 500*ms)
		want(t, "admissions withdrawn", f.q.Status().Counts.Withdrawals, uint64(2))
		f.wantState(f.q, 0, redlock.NodeQuarantined, "clock jumped")
		f.wantState(f.q, 1, redlock.NodeQuarantined, "clock jumped")
		want(t, "the lease", held.Err(), nil)
	})
}

// A host that is paused again is judged by the nodes' clocks at that time. Guards
// clockJumps.judge: jumpAt.
func TestPausedAgain(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		paused, pause := f.pausedHost()
		for range 3 {
			time.Sleep(longest + 3*beat)
			want(t, "ready", paused.Status().Ready, 5)
			pause(10 * time.Second)
		}
		time.Sleep(3 * beat)
		want(t, "admissions withdrawn", paused.Status().Counts.Withdrawals, uint64(0))
		want(t, "ready for the other host", f.q.Status().Ready, 5)
	})
}

// If a node's clock was set back once, that does not explain a later pause of the host: its
// leases age by the pause. Guards clockJumps.judge: gained.
func TestPausedAfterNodeWasSetBack(t *testing.T) {
	const ttl, pauseFor = 20 * time.Second, 5 * time.Second
	long := func(o *redlock.Options) { o.MaxTTL = ttl }
	simTest(t, 1, func(t *testing.T, f *fleet) {
		time.Sleep(ttl + 3*beat)
		paused, pause := f.pausedHost(long)
		time.Sleep(3 * beat)
		f.sims[0].StepClock(-pauseFor) // or the node was paused for so long, which looks the same
		time.Sleep(ttl + 5*beat)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl})
		want(t, "error", err, nil)
		before := l.Deadline()
		pause(pauseFor)
		time.Sleep(3 * beat)
		wantWithin(t, "aged by", before-l.Deadline(), pauseFor, pauseFor+100*ms)
	}, withQuarantine, long)
}

// A lease is being extended while its host is paused. The nodes confirm the extension after it
// ended without a quorum. The lease ages once, and its new deadline has been reported by then.
// Guards Lease.ageLocked: missed; ageMissed: moved.
func TestExtensionConfirmedLateOverPause(t *testing.T) {
	const ttl, nodeTimeout, pauseFor = 20 * time.Second, 2 * time.Second, 10 * time.Second
	long := func(o *redlock.Options) { o.MaxTTL = ttl }
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(ttl + 3*beat)
		var late, reported atomic.Int64
		paused, pause := f.pausedHost(long, hearsLate(&late, 2, 4), func(o *redlock.Options) {
			o.NodeTimeout = nodeTimeout
			o.DeadlineChanged = func(l *redlock.Lease) { reported.Store(int64(l.Deadline())) }
		})
		time.Sleep(2*beat + 500*ms)
		foreign(f.sims[3:4], "x", time.Hour)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: ttl, Guard: 10 * ms, Keep: true})
		want(t, "error", err, nil)
		granted := f.now()
		f.at(granted, ttl/3-50*ms)
		late.Store(int64(3500 * ms))
		f.at(granted, ttl/3+10*ms) // the extension is in progress
		pause(pauseFor)
		f.at(granted, ttl/3+nodeTimeout+50*ms)
		want(t, "the reported deadline", time.Duration(reported.Load()), l.Deadline())
		f.at(granted, ttl/3+3600*ms)
		want(t, "the lease", l.Err(), nil)
		wantWithin(t, "deadline after the extension was sent", l.Deadline()-(granted+ttl/3), ttl-pauseFor-300*ms, ttl-pauseFor)
	}, withQuarantine, long)
}
