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

// If the default user of a durable node lacks rights, the node skips votes when it loads its
// file. So it is quarantined after a restart. Guards readRights, hasEachVote: loadsAll.
func TestDurableNodeSkipsVotesWithoutRights(t *testing.T) {
	for _, denied := range []string{"SET", "DEL", "PEXPIREAT", "ZADD", "ZREM", "HSET"} {
		durableTest(t, 3, func(t *testing.T, f *fleet) {
			f.sims[0].Crash(true)
			f.sims[0].SetDefaultUser(denied) // it is in the ACL file, which was not loaded before
			f.sims[0].Restart()
			time.Sleep(beat + 400*ms)
			f.wantState(f.q, 0, redlock.NodeQuarantined)
			f.sims[0].SetDefaultUser("")
			time.Sleep(longest + 3*beat)
			f.wantState(f.q, 0, redlock.NodeReady)
		})
	}
}

// A host that started later, and saw no quarantine, also knows that a durable node keeps its
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

// If a durable node starts with the file of another node, it has the votes of that node and not
// its own. A host that saw neither node before also notices. The node is quarantined once, and
// then treated like the others. Guards judgeRestarted: own, by the name.
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

// A durable node may start with the votes of another node list, whose locks may still be held. It
// waits until these leases have expired. Guards judgeRestarted: digest.
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

// A durable node that starts with a file from before a quarantine lacks its later votes. This is
// also noticed if the quarantine has not ended. Guards compareIncarnations.
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

// If the append-only file of a durable node is switched on again, it lacks the earlier votes
// until it is rewritten. The rewrite may take long, or fail. If the node restarts before, it is
// quarantined. A complete file stays complete while it is rewritten. Guards noteFile,
// hasEachVote.
func TestDurableNodeRewritesItsFile(t *testing.T) {
	for _, tt := range []struct {
		what, field, value string
		off                bool // before it was switched on
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
			f.sims[0].SetInfo(tt.field, tt.value) // first, because the host may look in between
			f.sims[0].SetDurable(true)
			time.Sleep(longest + 2*beat)
			warned := strings.Contains(strings.Join(f.nodeStatus(f.q, 0).Warning, " "), "durable = true does not hold")
			want(t, tt.what+": warned", warned, tt.waits)
			f.sims[0].Crash(true)
			f.sims[0].SetInfo(tt.field, "")
			f.sims[0].Restart()
			time.Sleep(beat + 400*ms) // the next look notices it
			want(t, tt.what+": quarantined", f.nodeStatus(f.q, 0).State == redlock.NodeQuarantined, tt.waits)
		})
	}
}

// If a node did not write every vote to its file for a while and is restarted, it is quarantined.
// This holds even if a host that does not know it lets the node vote first. Guards withdrawal:
// restartedUnnoticed.
func TestDurableNodeTrustedByAnotherHost(t *testing.T) {
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
		f.wantState(late, 0, redlock.NodeReady) // its file says so
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

// A durable node restarts right after another host ended its quarantine. It has all votes since
// then, so it is not quarantined, even if this host has only seen the quarantine. Guards
// judgeRestarted: own, by the marker.
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
		f.wantState(f.q, 0, redlock.NodeQuarantined) // this host has not looked since
		f.sims[0].Crash(true)
		f.sims[0].Restart()
		other.Close()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}
