package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// durableNodes promises that all nodes write every vote to their files.
func durableNodes(o *redlock.Options) {
	for i := range o.Nodes {
		o.Nodes[i].Durable = true
	}
}

// durableTest runs body with durable nodes whose files have every vote that still counts.
func durableTest(t *testing.T, n int, body func(t *testing.T, f *fleet)) {
	t.Helper()
	admittedTest(t, n, func(t *testing.T, f *fleet) {
		every(f.sims, func(s *redlocktest.Sim) { s.SetDurable(true) })
		time.Sleep(longest + beat + 100*ms)
		body(t, f)
	}, durableNodes)
}

// If the user default of a durable node lacks rights, the node skips votes when it
// loads its file. So hosts wait after its restart. Guards readRights, hasEachVote:
// loads.
func TestDurableNodeLeavesVotesOut(t *testing.T) {
	for _, denied := range []string{"SET", "DEL", "PEXPIREAT", "ZADD", "ZREM", "HSET"} {
		durableTest(t, 3, func(t *testing.T, f *fleet) {
			f.sims[0].Crash(true)
			f.sims[0].SetDefaultUser(denied) // in its aclfile, and not loaded before
			f.sims[0].Restart()
			time.Sleep(beat + 400*ms)
			f.wantState(f.q, 0, redlock.NodeQuarantined)
			f.sims[0].SetDefaultUser("")
			time.Sleep(longest + 3*beat)
			f.wantState(f.q, 0, redlock.NodeReady)
		})
	}
}

// A host that came later, and saw no quarantine, knows as well that a durable node has its
// votes over a restart. Guards judgeRestarted: own, by the word.
func TestDurableNodeForALaterHost(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		late := f.another(withQuarantine, durableNodes)
		defer late.Close()
		late.Settle(t.Context())
		every(f.sims, func(s *redlocktest.Sim) { s.Crash(true); s.Restart() })
		time.Sleep(beat + 400*ms)
		want(t, "ready", late.Status().Ready, 3)
	})
}

// A durable node that comes up with another one's file has that one's votes and not its
// own, also for a host that knows neither: it waits, and is a node like others then.
// Guards judgeRestarted: own, by the name.
func TestDurableNodeWithAnothersFile(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		f.sims[2].Crash(true)
		f.sims[2].Restore(f.sims[0].Snapshot())
		late := f.another(withQuarantine, durableNodes)
		defer late.Close()
		late.Settle(t.Context())
		f.wantState(late, 0, redlock.NodeReady)
		f.wantState(late, 2, redlock.NodeQuarantined)
		time.Sleep(longest + 3*beat)
		f.wantState(late, 2, redlock.NodeReady)
	})
}

// A durable node may start with the votes of another node list, which may still hold
// locks. It waits until these leases have expired. Guards judgeRestarted: digest.
func TestDurableNodeOfAnotherList(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		f.sims[0].Crash(true)
		f.sims[0].Restart()
		alone := f.another(withQuarantine, durableNodes, func(o *redlock.Options) { o.Nodes = o.Nodes[:1] })
		defer alone.Close()
		alone.Settle(t.Context())
		f.wantState(alone, 0, redlock.NodeQuarantined)
		time.Sleep(longest + 2*beat)
		f.wantState(alone, 0, redlock.NodeReady)
	})
}

// If a durable node starts with a file from before a quarantine, it lacks its later
// votes. This holds even if the quarantine has not ended yet. Guards judge:
// isOutdated.
func TestDurableNodeWithAnOldFile(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		old := f.sims[0].Snapshot()
		f.sims[0].Flush()
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.sims[0].Crash(true)
		f.sims[0].Restore(old)
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
	})
}

// A durable node whose append-only file is switched on again has not the votes before in
// it until it was rewritten, which may take long, or fail: a restart waits. A file that was
// whole, and is rewritten, stays so. Guards noteFile, hasEachVote.
func TestDurableNodeRewritesItsFile(t *testing.T) {
	for _, tt := range []struct {
		what, field, value string
		off                bool // before
		waits              bool
	}{
		{"rewritten", "aof_rewrite_in_progress", "1", false, false},
		{"switched on and rewritten", "aof_rewrite_in_progress", "1", true, true},
		{"switched on and about to be rewritten", "aof_rewrite_scheduled", "1", true, true},
		{"not rewritten", "aof_last_bgrewrite_status", "err", false, true},
		{"not written", "aof_last_write_status", "err", false, true},
	} {
		durableTest(t, 3, func(t *testing.T, f *fleet) {
			if tt.off {
				f.sims[0].SetDurable(false)
				time.Sleep(beat + 100*ms)
			}
			f.sims[0].SetInfo(tt.field, tt.value) // first: it may be looked at in between
			f.sims[0].SetDurable(true)
			time.Sleep(longest + 2*beat)
			warned := strings.Contains(strings.Join(f.nodeStatus(f.q, 0).Warning, " "), "durable = true does not hold")
			want(t, tt.what+": it is warned of", warned, tt.waits)
			f.sims[0].Crash(true)
			f.sims[0].SetInfo(tt.field, "")
			f.sims[0].Restart()
			time.Sleep(beat + 400*ms) // it is noticed with the next look
			want(t, tt.what+": it waits", f.nodeStatus(f.q, 0).State == redlock.NodeQuarantined, tt.waits)
		})
	}
}

// If a node did not write every vote to its file for a while and is restarted, it
// waits. This holds even if a host that has not seen that lets it vote first. Guards
// withdrawal: restartedUnnoticed.
func TestDurableNodeIsBelievedByAnother(t *testing.T) {
	var away atomic.Bool // this host cannot reach the node
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetDurable(false)
		time.Sleep(beat + 100*ms)
		f.sims[0].SetDurable(true)
		time.Sleep(beat + 100*ms)
		away.Store(true)
		f.sims[0].Crash(true)
		f.sims[0].Restart()
		late := f.another(withQuarantine, durableNodes)
		defer late.Close()
		late.Settle(t.Context())
		f.wantState(late, 0, redlock.NodeReady) // as its file says
		away.Store(false)
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		time.Sleep(beat + 100*ms)
		f.wantState(late, 0, redlock.NodeQuarantined)
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	}, durableNodes, func(o *redlock.Options) {
		dial := o.Nodes[0].Dial
		o.Nodes[0].Dial = func(ctx context.Context) (redlock.Conn, error) {
			if away.Load() {
				return nil, errors.New("away")
			}
			return dial(ctx)
		}
	})
}

// A durable node that is restarted when another host has just ended its quarantine has
// all votes since, and waits for nothing, also where this host has only seen the
// quarantine. Guards judgeRestarted: own, by the marker.
func TestDurableNodeRestartedAfterQuarantine(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		other := f.another(withQuarantine, durableNodes)
		defer other.Close()
		other.Settle(t.Context())
		f.sims[0].Flush()
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.wantState(other, 0, redlock.NodeQuarantined)
		want(t, "Admit", other.Admit(t.Context(), "a"), nil)
		f.wantState(f.q, 0, redlock.NodeQuarantined) // it has not looked since
		f.sims[0].Crash(true)
		f.sims[0].Restart()
		other.Close()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}
