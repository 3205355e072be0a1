package redlock_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A node that lost its counters copies them from enough other nodes to meet every quorum that it
// was part of. Until so many are reachable, it has no vote. Guards endQuarantine,
// fleet.CopyCounters.
func TestCountersAreCopied(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		ahead := strconv.FormatInt(time.Now().Add(100*24*time.Hour).UnixMicro(), 10)
		every(f.sims[3:], func(s *redlocktest.Sim) { s.Do("HSET", nodeKey, "zz", ahead) })
		every(f.sims[1:3], down)
		f.sims[0].Flush()
		f.sims[4].Down()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "copied from 3", "there are 1")
		want(t, "left of the quarantine", f.nodeStatus(f.q, 0).Left, 0)
		every(f.sims[1:3], up)
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		want(t, "a counter that the others had", f.sims[0].Do("HGET", nodeKey, "zz").Str, ahead)
		want(t, "quorums without counters", f.q.Status().Counts.CounterLosses, uint64(0)) // a new fleet does not count
	})
}

// Without quarantines, a node also votes again after its counters were deleted. Guards
// judgeAdmitted, mark.
func TestCountersRestartWithoutQuarantine(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].Do("HDEL", nodeKey, counterOfX)
		f.release(f.acquire(oneTryFor(time.Second)))
		time.Sleep(100 * ms)
		f.acquire(oneTryFor(time.Second))
		want(t, "it votes", f.sims[0].Get("redlock:x") != "", true)
		want(t, "quarantines", f.q.Status().Counts.Quarantines, 0)
	})
}

// If a node waits for counters of nodes that are down, the error suggests a retry after a second,
// not after milliseconds. If nodes are only down, the retry is due soon. If a quarantine has an
// end, the retry is due at that end. Guards noQuorumError: endlessRetry.
func TestRetryWhileCountersAreMissing(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		wantRetry := func(what string, retry, quarantine time.Duration) {
			t.Helper()
			_, err := f.q.Acquire(t.Context(), oneTryFor(time.Second))
			var e *redlock.NoQuorumError
			if !errors.As(err, &e) || e.Retry != retry || e.Quarantine != quarantine {
				t.Errorf("%s: %v, %+v; want retry=%v and quarantine=%v", what, err, e, retry, quarantine)
			}
		}
		every(f.sims[1:], down)
		time.Sleep(2 * beat)
		wantRetry("down", 50*ms, 0)
		f.sims[1].Flush()
		f.sims[1].Up()
		time.Sleep(2 * beat)
		left := f.nodeStatus(f.q, 1).Left
		wantRetry("in quarantine", left, left)
		if _, err := f.q.Acquire(t.Context(), oneTryFor(time.Second)); !strings.Contains(err.Error(), "and after that not until more nodes are up") || strings.Contains(err.Error(), "a quorum can vote in") {
			t.Errorf("got %v, want no promise that a quorum can vote when the quarantine is over", err)
		}
		if s := f.nodeStatus(f.q, 1); s.SourcesNeeded != 2 || s.SourcesFound != 1 {
			t.Errorf("in quarantine it needs %d others, and %d are found; want 2, 1", s.SourcesNeeded, s.SourcesFound)
		}
		time.Sleep(longest)
		f.wantState(f.q, 1, redlock.NodeQuarantined, "copied from 2", "there are 1")
		wantRetry("its quarantine has passed", time.Second, 0)
	})
}

// If a quorum lost its counters, they restart from the nodes' clocks, and one notice says so.
// Guards endQuarantine, announceLoss.
func TestTotalLossIsReported(t *testing.T) {
	var notices notices
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		notices.drop()
		last := f.acquire(redlock.Request{Name: "x", TTL: time.Second}).Fence()
		every(f.sims, flush)
		time.Sleep(2 * beat)
		for _, s := range f.q.Status().Nodes {
			if s.State != redlock.NodeQuarantined || s.SourcesFound < s.SourcesNeeded {
				t.Errorf("%s is %s and needs %d others, of which %d are found; want quarantined, and enough found, because all have lost them", s.Name, s.State, s.SourcesNeeded, s.SourcesFound)
			}
		}
		time.Sleep(longest)
		want(t, "ready", f.q.Status().Ready, 5)
		notices.want(t, redlock.CountersLost, "")
		want(t, "counter losses counted", f.q.Status().Counts.CounterLosses, uint64(1)) // the new fleet does not count
		if l := f.acquire(oneTryFor(time.Second)); l.Fence() <= last {
			t.Errorf("fencing token %d after %d", l.Fence(), last)
		}
	}, notices.collect)
}

// If some nodes of a new fleet are down, the others are admitted. That a quorum had no counters
// at one instant is still known when the first of them has some. Guards noteTotalLoss.
func TestNewNodesWithSomeDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		defer f.closeSims()
		every(f.sims[3:], down)
		f.open(withQuarantine)
		defer f.q.Close()
		time.Sleep(longest + 2*beat)
		want(t, "ready", f.q.Status().Ready, 3)
		every(f.sims[3:], up)
		time.Sleep(longest + 3*beat)
		want(t, "ready when all are up", f.q.Status().Ready, 5)
		want(t, "counter losses counted", f.q.Status().Counts.CounterLosses, uint64(1))
	})
}

// Nodes that lose their counters one after the other never add up to a total loss, even if
// another daemon admits them. Guards noteTotalLoss: lostAt.
func TestLossesDoNotAddUp(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		last := f.acquire(redlock.Request{Name: "x", TTL: time.Second}).Fence()
		f.sims[0].Flush()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[2].Down()
		f.sims[1].Flush()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 1, redlock.NodeQuarantined, "there are 1")
		f.sims[2].Up()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 1, redlock.NodeReady)
		if l := f.acquire(oneTryFor(time.Second)); l.Fence() <= last {
			t.Errorf("fencing token %d after %d", l.Fence(), last)
		}
	})
}

// The next loss of a quorum's counters is also reported, even if a node without counters in the
// first loss has been down since. An unreachable node does not count as one without counters.
// Guards Fleet.CounterLoss: connected; forgetAnnouncedLoss.
func TestNextTotalLossIsReported(t *testing.T) {
	var notices notices
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims, flush)
		time.Sleep(2 * beat)
		f.sims[0].Down()
		time.Sleep(longest + beat)
		want(t, "ready, one being down", f.q.Status().Ready, 2)
		time.Sleep(2 * beat)
		notices.drop()
		every(f.sims[1:], flush)
		time.Sleep(longest + 2*beat)
		want(t, "ready again", f.q.Status().Ready, 2)
		notices.want(t, redlock.CountersLost, "")
	}, notices.collect)
}

// The largest value of each counter is copied, no matter which node has it. Guards raiseCounters:
// max.
func TestLargestCounterIsCopied(t *testing.T) {
	for node := 1; node <= 2; node++ {
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			ahead := strconv.FormatInt(time.Now().Add(100*24*time.Hour).UnixMicro(), 10)
			f.sims[node].Do("HSET", nodeKey, "zz", ahead)
			f.sims[0].Flush()
			time.Sleep(longest + 3*beat)
			f.wantState(f.q, 0, redlock.NodeReady)
			want(t, name("the counter that node %d had", node), f.sims[0].Do("HGET", nodeKey, "zz").Str, ahead)
		})
	}
}

// A node whose clock jumped still has its counters. So the loss of another node is not total:
// that node waits until it can copy from enough nodes. Guards CounterLoss.contains: Lost.
func TestClockJumpIsNoLossOfCounters(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].StepClock(90 * time.Second)
		time.Sleep(beat + 500*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "clock jumped")
		f.sims[1].Flush()
		time.Sleep(beat + 500*ms)
		f.wantState(f.q, 1, redlock.NodeQuarantined, "forgotten locks")
		f.sims[2].Down()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.wantState(f.q, 1, redlock.NodeQuarantined, "copied from 2", "there are 1")
		want(t, "quorums without counters", f.q.Status().Counts.CounterLosses, uint64(0)) // a new fleet does not count
		f.sims[2].Up()
		time.Sleep(2 * beat)
		f.wantState(f.q, 1, redlock.NodeReady)
	})
}

// Counters that restart are larger than any counter that a host with a fast clock may have
// proposed and a node has accepted. Guards rewrite: ProposalLead.
func TestCountersRestartBeyondProposals(t *testing.T) {
	ahead := func(o *redlock.Options) { o.Wall = func() time.Time { return time.Now().Add(900 * ms) } }
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		right := f.another(withQuarantine)
		defer right.Close()
		right.Settle(t.Context())
		last := f.acquire(oneTryFor(time.Second))
		every(f.sims, flush)
		_, err := right.Acquire(t.Context(), oneTryFor(time.Second))
		wantErr(t, "flushed", err, redlock.ErrNoQuorum)
		time.Sleep(10 * ms)
		for _, node := range []string{"a", "b", "c"} {
			want(t, "Admit", right.Admit(t.Context(), node), nil)
		}
		next, err := right.Acquire(t.Context(), oneTryFor(time.Second))
		want(t, "error", err, nil)
		if next.Fence() <= last.Fence() {
			t.Errorf("fencing token %d after %d", next.Fence(), last.Fence())
		}
	}, ahead)
}

// If a node loses its data again, alone, this does not belong to the earlier total loss: the node
// waits for counters to copy. Guards noteTotalLoss.
func TestLaterLossIsNotTotal(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		every(f.sims, flush)
		time.Sleep(2 * beat)
		for _, node := range []string{"b", "c"} {
			want(t, "Admit", f.q.Admit(t.Context(), node), nil)
		}
		f.sims[0].Flush()
		f.sims[2].Down()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "copied from 2", "there are 1")
	})
}
