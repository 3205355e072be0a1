package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const (
	// longest is how long nodes are quarantined here.
	longest = 3 * time.Second
	// beat is how much later a lane may notice what it was not asked for.
	beat = time.Second
)

// withQuarantine is what everybody has but embedded nodes.
func withQuarantine(o *redlock.Options) { o.NoQuarantine, o.MaxTTL = false, longest }

// admittedTest runs body with nodes that have been admitted.
func admittedTest(t *testing.T, n int, body func(t *testing.T, f *fleet), change ...func(*redlock.Options)) {
	t.Helper()
	simTest(t, n, func(t *testing.T, f *fleet) {
		time.Sleep(longest + 2*beat)
		for i := range n {
			f.wantState(f.q, i, redlock.NodeReady)
		}
		body(t, f)
	}, append([]func(*redlock.Options){withQuarantine}, change...)...)
}

func (f *fleet) nodeStatus(q *redlock.Quorum, node int) redlock.NodeStatus {
	return q.Status().Nodes[node]
}

// wantState checks a node's state, and words of its reason.
func (f *fleet) wantState(q *redlock.Quorum, node int, state redlock.NodeState, words ...string) {
	f.Helper()
	s := f.nodeStatus(q, node)
	reason := fmt.Sprint(s.Reason)
	if s.State != state {
		f.Errorf("node %s is %s (%s), want %s", s.Name, s.State, reason, state)
	}
	for _, word := range words {
		if !strings.Contains(reason, word) {
			f.Errorf("node %s is %s: %s; want a word of %q", s.Name, s.State, reason, word)
		}
	}
}

// A set of nodes that nobody knows waits once: nobody locks before max_ttl is
// over, whoever waits is granted then, and who comes later need not wait. The
// errors say so. Guards judge: mark, judgePending, vouch; patience.next.
func TestNewNodesWaitOnce(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		begin := f.now()
		status := f.q.Status()
		want(t, "left", status.Left, longest)
		want(t, "spare", status.Spare(), -3)
		time.Sleep(500 * ms)
		_, err := f.q.Acquire(t.Context(), oneTryFor(time.Second))
		wantNoQuorum(t, err, redlock.FailedQuarantined, "a", "b", "c", "d", "e")
		var e *redlock.NoQuorumError
		if errors.As(err, &e); e.Retry != longest-500*ms || e.Quarantine != e.Retry {
			t.Errorf("retry=%v quarantine=%v, want what is left, %v", e.Retry, e.Quarantine, longest-500*ms)
		}
		if text := err.Error(); !strings.Contains(text, "can vote in 2.5s") || strings.Count(text, "quarantine") != 1 {
			t.Errorf("the error does not tell how long to wait, or too often: %s", text)
		}
		waited := f.acquireBy(redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever})
		wantWithin(t, "granted", f.now()-begin, longest, longest+250*ms)
		time.Sleep(beat)
		want(t, "spare", f.q.Status().Spare(), 2)
		want(t, "quarantines begun", f.q.Status().Counts.Quarantines, uint64(5))
		want(t, "times that a quorum had no counters", f.q.Status().Counts.CounterLosses, uint64(1))

		later := f.another(withQuarantine)
		defer later.Close()
		later.Settle(t.Context())
		want(t, "ready nodes of who comes later", later.Status().Ready, 5)
		f.release(waited)
	}, withQuarantine)
}

func oneTryFor(ttl time.Duration) redlock.Request { return redlock.Request{Name: "x", TTL: ttl} }

// acquireBy takes a lock and returns at the instant of the grant.
func (f *fleet) acquireBy(r redlock.Request) *redlock.Lease {
	f.Helper()
	l, err := f.q.Acquire(f.Context(), r)
	if err != nil {
		f.Fatalf("acquire %s: %v", r.Name, err)
	}
	return l
}

// Every way to forget a vote is noticed by the very command that would have
// voted, costs a quarantine of max_ttl from then on, and nothing else. Guards
// ballot.lua: the epoch; lane.fail; judgeRestarted; memory.suspicion.
func TestForgetfulNodes(t *testing.T) {
	for what, forgets := range map[string]func(*fleet){
		"FLUSHALL":                 func(f *fleet) { f.sims[0].Flush() },
		"a restart":                func(f *fleet) { f.sims[0].Restart() },
		"a restart from a dump":    func(f *fleet) { f.sims[0].Restore(f.sims[0].Snapshot()) },
		"another's data":           func(f *fleet) { f.sims[0].Resync(f.sims[1]) },
		"nobody's data":            func(f *fleet) { f.sims[0].Resync(nil) },
		"its hash deleted":         func(f *fleet) { f.sims[0].Do("DEL", nodeKey) },
		"a counter deleted":        func(f *fleet) { f.sims[0].Do("HDEL", nodeKey, counterOfX) },
		"its hash of another type": func(f *fleet) { f.sims[0].Do("DEL", nodeKey); f.sims[0].Do("SET", nodeKey, "v") },
	} {
		admittedTest(t, 5, func(t *testing.T, f *fleet) {
			held := f.acquire(redlock.Request{Name: "held", TTL: longest, Keep: true})
			begin := f.now()
			forgets(f)
			time.Sleep(600 * ms) // a restarted node is dialled again
			if what == "its hash of another type" {
				time.Sleep(beat)
				f.wantState(f.q, 0, redlock.NodeRefused, "WRONGTYPE")
				return
			}
			l := f.acquire(oneTryFor(time.Second))
			f.wantState(f.q, 0, redlock.NodeQuarantined, "forgotten locks")
			want(t, what+": it voted", f.sims[0].Get("redlock:x") != "", false)
			f.release(l)
			f.at(begin, longest-ms)
			f.wantState(f.q, 0, redlock.NodeQuarantined)
			f.at(begin, longest+2*beat)
			f.wantState(f.q, 0, redlock.NodeReady)
			f.at(begin, 2*longest+beat)
			want(t, what+": the lease that was held", held.Err(), nil)
			want(t, what+": it is there again", f.sims[0].Get("redlock:held") != "", true)
			f.release(held)
		})
	}
}

// counterOfX is the field that the key redlock:x counts in.
const counterOfX = "nj"

// A key that the node let go, because it was made to believe another time, is
// no reason for more than the loss of that node. Guards clockWatch, suspicion.
func TestClockJump(t *testing.T) {
	for _, step := range []time.Duration{90 * time.Second, -90 * time.Second, 50 * ms, -50 * ms} {
		var notices notices
		admittedTest(t, 5, func(t *testing.T, f *fleet) {
			notices.drop()
			before := f.sims[0].Do("HGET", nodeKey, counterOfX).Str
			begin := f.now()
			f.sims[0].StepClock(step)
			f.at(begin, beat+500*ms)
			f.wantState(f.q, 0, redlock.NodeQuarantined, "clock jumped")
			notices.want(t, redlock.ClockJumped, "a")
			want(t, "jumps counted", f.q.Status().Counts.ClockJumps, uint64(1))
			want(t, "withdrawals counted", f.q.Status().Counts.Withdrawals, uint64(1))
			f.at(begin, longest-ms)
			f.wantState(f.q, 0, redlock.NodeQuarantined)
			f.at(begin, longest+3*beat)
			f.wantState(f.q, 0, redlock.NodeReady)
			want(t, "its counters, which were not lost", f.sims[0].Do("HGET", nodeKey, counterOfX).Str, before)
			notices.want(t, redlock.ClockJumped, "a")
		}, notices.collect)
	}
}

// A clock that runs too fast or too slow shows like one that is stepped, and one
// within the allowance never. Guards clockWatch.
func TestClockRateIsWatched(t *testing.T) {
	for rate, isJump := range map[float64]bool{1.03: true, 0.97: true, 1.009: false, 0.991: false} {
		admittedTest(t, 5, func(t *testing.T, f *fleet) {
			f.delay(func(int) time.Duration { return 3 * ms }, func(int) time.Duration { return 4 * ms })
			f.sims[0].SetClockRate(rate)
			time.Sleep(10 * longest)
			want(t, fmt.Sprintf("a rate of %v is noticed", rate), f.q.Status().Counts.ClockJumps > 0, isJump)
		})
	}
}

// A node whose role, replicas or settings forbid it has no vote, says why and
// what to do, and has it back at once where nothing was lost. Guards refusal.
func TestRefusedNodes(t *testing.T) {
	for _, c := range []struct{ key, value, reason string }{
		{"connected_slaves", "1", "detach them"},
		{"cluster_enabled", "1", "cluster-enabled no"},
		{"redis_version", "6.2.6", "Redis 7 or later"},
		{"role", "slave", "REPLICAOF NO ONE"},
	} {
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			f.sims[0].SetInfo(c.key, c.value)
			time.Sleep(beat + 100*ms)
			f.wantState(f.q, 0, redlock.NodeRefused, c.reason)
			l := f.acquire(oneTryFor(time.Second))
			want(t, "keys on it", len(f.sims[0].Keys()), 1)
			f.release(l)
			f.sims[0].SetInfo(c.key, "")
			time.Sleep(beat + 100*ms)
			f.wantState(f.q, 0, redlock.NodeReady)
		})
	}
}

// Eviction forgets locks only where there is a limit to the memory. Guards
// refusal.
func TestEvictingPolicy(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetInfo("maxmemory_policy", "allkeys-lru")
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[0].SetInfo("maxmemory", "1000000")
		time.Sleep(beat)
		f.wantState(f.q, 0, redlock.NodeRefused, "allkeys-lru", "noeviction")
	})
}

// A node that was a replica in between may hold another's data, or have missed
// its own: its epoch is withdrawn. Guards suspicion: replID.
func TestFormerReplica(t *testing.T) {
	var notices notices
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		notices.drop()
		f.sims[0].SetInfo("master_replid", "8371445ab2ee4e5a3b63ab2aa8d1a3dbcbd00000")
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		notices.want(t, redlock.Withdrawn, "a")
		time.Sleep(longest + beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	}, notices.collect)
}

// Only what a node wrote to its own file, always, is as good as if it had gone
// on. Guards judgeRestarted, warnings.
func TestDurableNodes(t *testing.T) {
	durable := func(o *redlock.Options) {
		for i := range o.Nodes {
			o.Nodes[i].Durable = true
		}
	}
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		want(t, "warnings of a node that is not durable after all", len(f.nodeStatus(f.q, 0).Warning), 1)
		every(f.sims, func(s *redlocktest.Sim) { s.SetDurable(true) })
		time.Sleep(beat + 100*ms)
		want(t, "warnings of one that is", len(f.nodeStatus(f.q, 0).Warning), 0)
		held := f.acquire(redlock.Request{Name: "x", TTL: longest})
		every(f.sims, func(s *redlocktest.Sim) { s.Crash(true); s.Restart() })
		time.Sleep(beat + 400*ms) // no lane notices sooner
		want(t, "ready after all were killed", f.q.Status().Ready, 3)
		_, err := f.q.Acquire(t.Context(), oneTryFor(time.Second))
		wantErr(t, "the lock of before", err, redlock.ErrHeld)
		f.release(held)

		f.sims[1].Crash(true)
		f.sims[1].SetDurable(false)
		f.sims[1].Restart()
		f.sims[2].Crash(true)
		f.sims[2].Restore(f.sims[0].Snapshot()) // another's file
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.wantState(f.q, 1, redlock.NodeQuarantined)
		f.wantState(f.q, 2, redlock.NodeQuarantined)
	}, durable)
}

// Every daemon measures a quarantine by its own clock from when it saw it
// itself, and follows whoever was first. A second loss begins it anew. Guards
// judgePending, node.lua.
func TestQuarantineOfTwoDaemons(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		begin := f.now()
		time.Sleep(time.Second)
		second := f.another(withQuarantine)
		defer second.Close()
		f.at(begin, 2*time.Second)
		f.q.Close() // and nobody knows any more how long it waited
		f.at(begin, 4*time.Second-ms)
		for i := range 3 {
			f.wantState(second, i, redlock.NodeQuarantined)
		}
		f.at(begin, 4*time.Second+beat)
		want(t, "ready", second.Status().Ready, 3)

		third := f.another(withQuarantine)
		defer third.Close()
		third.Settle(t.Context())
		lost := f.now()
		f.sims[0].Flush()
		f.at(lost, 2*time.Second+500*ms)
		f.sims[0].Flush()
		f.at(lost, longest+2*time.Second)
		f.wantState(second, 0, redlock.NodeQuarantined)
		f.wantState(third, 0, redlock.NodeQuarantined)
		f.at(lost, longest+5*time.Second)
		f.wantState(second, 0, redlock.NodeReady)
		f.wantState(third, 0, redlock.NodeReady)
	}, withQuarantine)
}

// Traffic does not put the end of a quarantine off. Guards serve: the heartbeat.
func TestQuarantineEndsUnderLoad(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].Flush()
		for range 60 {
			f.release(f.acquire(oneTryFor(time.Second)))
			time.Sleep(100 * ms)
		}
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}

// A node gets its counters back from so many others that they meet every quorum
// it was part of; until there are so many it has no vote. Guards vouch,
// copyCounters.
func TestCountersAreCopied(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		every(f.sims[3:], func(s *redlocktest.Sim) { s.Do("HSET", nodeKey, "zz", "8000000000000000") })
		every(f.sims[1:3], down)
		f.sims[0].Flush()
		f.sims[4].Down()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "copied from 3", "there are 1")
		want(t, "left of the quarantine", f.nodeStatus(f.q, 0).Left, 0)
		every(f.sims[1:3], up)
		time.Sleep(2 * beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		want(t, "a counter that the others had", f.sims[0].Do("HGET", nodeKey, "zz").Str, "8000000000000000")
		want(t, "quorums without counters", f.q.Status().Counts.CounterLosses, uint64(1)) // the new fleet
	})
}

// Where a quorum is seen without counters, these begin anew from the nodes'
// clocks, and it is told once. Guards vouch, announceLoss.
func TestTotalLossIsTold(t *testing.T) {
	var notices notices
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		notices.drop()
		last := f.acquire(redlock.Request{Name: "x", TTL: time.Second}).Fence()
		every(f.sims, flush)
		time.Sleep(longest + 2*beat)
		want(t, "ready", f.q.Status().Ready, 5)
		notices.want(t, redlock.CountersLost, "")
		want(t, "counted", f.q.Status().Counts.CounterLosses, uint64(2)) // and the new fleet
		if l := f.acquire(oneTryFor(time.Second)); l.Fence() <= last {
			t.Errorf("fencing token %d after %d", l.Fence(), last)
		}
	}, notices.collect)
}

// The fleet's max_ttl is the largest that anybody uses, first on the nodes.
// Guards judgeAdmitted, judgePending: noteMaxTTL.
func TestMaxTTLOfTheFleet(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		longer := f.another(withQuarantine, func(o *redlock.Options) { o.MaxTTL = 3 * longest })
		defer longer.Close()
		longer.Settle(t.Context())
		want(t, "ready", longer.Status().Ready, 3)
		for _, sim := range f.sims {
			if epoch := sim.Do("HGET", nodeKey, "epoch").Str; !strings.Contains(epoch, ":9000:") {
				t.Errorf("epoch %s, want a max_ttl of 9000 ms", epoch)
			}
		}
		f.acquire(redlock.Request{Name: "x", TTL: time.Second, Wait: time.Second}) // an epoch that changed costs an attempt
		time.Sleep(2 * beat)
		want(t, "ready for who uses the smaller one", f.q.Status().Ready, 3)
		want(t, "max_ttl of the fleet", f.q.Status().MaxTTL, 3*longest)
		want(t, "warnings", len(f.q.Status().Warning), 1)
		lost := f.now()
		f.sims[0].Flush()
		f.at(lost, 3*longest-ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.wantState(longer, 0, redlock.NodeQuarantined)
		f.at(lost, 3*longest+2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}

// Two names for one server, and another node list, get no vote. Guards judge.
func TestWrongNodeLists(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		other := f.another(withQuarantine, func(o *redlock.Options) { o.Nodes = o.Nodes[:1] })
		defer other.Close()
		other.Settle(t.Context())
		f.wantState(other, 0, redlock.NodeRefused, "another node list", "HDEL")

		twice := f.another(withQuarantine, func(o *redlock.Options) {
			o.Nodes[1] = f.sims[0].Node()
			o.Nodes[1].Name = "b"
		})
		defer twice.Close()
		twice.Settle(t.Context())
		f.wantState(twice, 0, redlock.NodeReady)
		f.wantState(twice, 1, redlock.NodeRefused, `is node "a" already`)

		f.sims[0].Do("HSET", nodeKey, "epoch", "version2:whatever")
		time.Sleep(2 * beat)
		f.wantState(f.q, 0, redlock.NodeRefused, "does not understand", "same version everywhere")
	})
}

// Admit ends a quarantine at once, and says what it cannot do.
func TestAdmit(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		for _, node := range []string{"a", "b", "c"} {
			if err := f.q.Admit(t.Context(), node); err != nil {
				t.Errorf("admit %s: %v", node, err)
			}
		}
		f.release(f.acquire(oneTryFor(time.Second)))
		wantErr(t, "admitted twice", f.q.Admit(t.Context(), "a"), redlock.ErrNotQuarantined)
		wantErr(t, "no such node", f.q.Admit(t.Context(), "z"), redlock.ErrRequest)
		f.sims[0].SetInfo("role", "slave")
		time.Sleep(2 * beat)
		wantErr(t, "refused", f.q.Admit(t.Context(), "a"), redlock.ErrNotQuarantined)
		f.sims[1].Flush()
		time.Sleep(2 * beat)
		f.sims[1].Hang()
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		wantErr(t, "a node that hangs", f.q.Admit(ctx, "b"), context.DeadlineExceeded)
	}, withQuarantine)
}

// Releases are sent to a node that has no vote. Guards admit: isRelease.
func TestQuarantinedNodeReleases(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: longest})
		f.sims[0].Do("HDEL", nodeKey, "epoch")
		time.Sleep(2 * beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		want(t, "keys before", len(f.keys()), 3)
		f.release(l)
		synctest.Wait()
		f.wantNoKeys("released")
	})
}

// notices are what a Quorum told.
type notices struct {
	mu  sync.Mutex // guards all
	all []redlock.Notice
}

func (n *notices) collect(o *redlock.Options) {
	o.Notice = func(notice redlock.Notice) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, notice)
	}
}

func (n *notices) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = nil
}

// want checks that exactly one notice was told.
func (n *notices) want(t testing.TB, kind redlock.NoticeKind, node string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) != 1 || n.all[0].Kind != kind || n.all[0].Node != node || n.all[0].Text == "" {
		t.Errorf("notices: %+v, want one of %s of node %q", n.all, kind, node)
	}
}

// Where most nodes jump alike it is this host's clock that stood still: its
// leases are over so much sooner, it takes no locks for max_ttl, and no other
// host is kept from voting. Guards judgeJump, Lease.age.
func TestPausedHost(t *testing.T) {
	var notices notices
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		var pause atomic.Int64 // how long this host stood still
		paused := f.another(withQuarantine, notices.collect, func(o *redlock.Options) {
			o.Clock = func() time.Duration { return f.now() - time.Duration(pause.Load()) }
		})
		defer paused.Close()
		paused.Settle(t.Context())
		time.Sleep(3 * beat)
		l, err := paused.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest, Keep: true})
		want(t, "error", err, nil)
		deadline := l.Deadline()
		synctest.Wait()
		pause.Store(int64(600 * ms))
		time.Sleep(beat + 700*ms)
		want(t, "deadline, by what was missed", l.Deadline() <= deadline-600*ms || l.Err() != nil, true)
		notices.want(t, redlock.HostClockJumped, "")
		want(t, "ready here", paused.Status().Ready, 0)
		want(t, "ready elsewhere", f.q.Status().Ready, 5)
		<-l.Lost()
		if now := f.now(); now >= deadline {
			t.Errorf("LOST was told at %v, the true deadline being %v", now, deadline)
		}
		time.Sleep(longest + 2*beat)
		want(t, "ready here later", paused.Status().Ready, 5)
		f.release(f.acquire(oneTryFor(time.Second)))
	})
}

// A new fleet of which some nodes are down is admitted as far as it is there:
// that a quorum had no counters at one instant is not forgotten when the first
// of them has some. Guards noteTotalLoss.
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
		want(t, "told once", f.q.Status().Counts.CounterLosses, uint64(1))
	})
}

// Nodes that lose their counters one after the other never add up to a total
// loss, also where another daemon admits them. Guards noteTotalLoss: countAt.
func TestLossesDoNotAddUp(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		last := f.acquire(redlock.Request{Name: "x", TTL: time.Second}).Fence()
		f.sims[0].Flush()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[2].Down()
		f.sims[1].Flush()
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 1, redlock.NodeQuarantined, "there are 1")
		f.sims[2].Up()
		time.Sleep(2 * beat)
		f.wantState(f.q, 1, redlock.NodeReady)
		if l := f.acquire(oneTryFor(time.Second)); l.Fence() <= last {
			t.Errorf("fencing token %d after %d", l.Fence(), last)
		}
	})
}
