package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

const (
	// longest is the duration of a quarantine in these tests.
	longest = 3 * time.Second
	// beat is the time after which a lane notices a change without a call.
	beat = time.Second
)

// withQuarantine sets the options of all hosts except those with embedded nodes.
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

// wantState checks a node's state, and that its reason contains the given words.
func (f *fleet) wantState(q *redlock.Quorum, node int, state redlock.NodeState, words ...string) {
	f.Helper()
	s := f.nodeStatus(q, node)
	reason := fmt.Sprint(s.Reason)
	if s.State != state {
		f.Errorf("node %s is %s (%s), want %s", s.Name, s.State, reason, state)
	}
	for _, word := range words {
		if !strings.Contains(reason, word) {
			f.Errorf("node %s is %s: %s; want %q in the reason", s.Name, s.State, reason, word)
		}
	}
}

// New nodes are quarantined once. No client gets a lock before max_ttl has passed. Then a waiter
// is granted, and later clients need not wait. The errors give the remaining time. Guards judge:
// beginQuarantine, judgePending, endQuarantine; retryPolicy.next.
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
			t.Errorf("retry=%v quarantine=%v, want the remaining time %v", e.Retry, e.Quarantine, longest-500*ms)
		}
		if text := err.Error(); !strings.Contains(text, "can vote in 2.5s") || strings.Count(text, "quarantine") != 1 {
			t.Errorf("the error does not give the remaining time exactly once: %s", text)
		}
		waited := f.acquireBy(redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever})
		wantWithin(t, "granted", f.now()-begin, longest, longest+250*ms)
		time.Sleep(beat)
		want(t, "spare", f.q.Status().Spare(), 2)
		want(t, "quarantines begun", f.q.Status().Counts.Quarantines, uint64(5))
		want(t, "times that a quorum had no counters", f.q.Status().Counts.CounterLosses, uint64(0))

		later := f.another(withQuarantine)
		defer later.Close()
		later.Settle(t.Context())
		want(t, "ready nodes for a later host", later.Status().Ready, 5)
		f.release(waited)
	}, withQuarantine)
}

// A waiter is granted the lock after a quarantine, however short its ttl is and however slow the
// nodes are. The round trips in which the nodes turn out to be ready are part of the quarantine.
// Guards Lane.quarantineLeftLocked: the quarantine whose time has passed.
func TestWaiterOutlastsQuarantine(t *testing.T) {
	for _, c := range []struct{ nodeTimeout, trip, ttl time.Duration }{
		{50 * ms, 48 * ms, redlock.MinTTL},
		{500 * ms, 1300 * ms, 2500 * ms}, // an overloaded host
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			begin := f.now()
			f.delay(each(0), func(int) time.Duration { return c.trip })
			a := f.start(t.Context(), redlock.Request{Name: "x", TTL: c.ttl, Wait: redlock.Forever})
			f.at(begin, longest+ms)
			if c.trip < c.nodeTimeout { // otherwise Status says that they are silent
				want(t, "left", f.q.Status().Left, c.nodeTimeout)
			}
			f.at(begin, longest+3*c.trip)
			f.delay(each(0), each(0))
			l, err := a.wait()
			if err != nil {
				t.Fatalf("a trip of %v: %v", c.trip, err)
			}
			wantWithin(t, "granted", f.now()-begin, longest+2*c.trip, longest+5*c.trip+time.Second)
			f.release(l)
		}, withQuarantine, func(o *redlock.Options) { o.NodeTimeout = c.nodeTimeout })
	}
}

func oneTryFor(ttl time.Duration) redlock.Request { return redlock.Request{Name: "x", TTL: ttl} }

// A fleet of one node promises what NODES.md says. While the node is down, no lock can be taken,
// and a held lock is lost before its deadline. After a restart without data, no client gets the
// lock before the deadline of its former holder. The node needs no other node to vote again, and
// the next fencing token is larger. Guards quarantineEnd, endQuarantine: isTotal.
func TestOneNode(t *testing.T) {
	admittedTest(t, 1, func(t *testing.T, f *fleet) {
		first, lost := f.watch(redlock.Request{Name: "x", TTL: longest, Keep: true, Guard: 500 * ms})
		second := f.another(withQuarantine)
		defer second.Close()
		second.Settle(t.Context())
		_, err := second.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest})
		wantErr(t, "held by the first host", err, redlock.ErrHeld)

		deadline, fence := first.Deadline(), first.Fence()
		f.sims[0].Down()
		_, err = second.Acquire(t.Context(), redlock.Request{Name: "y", TTL: longest})
		wantNoQuorum(t, err, redlock.FailedDown, "a")
		time.Sleep(600 * ms)
		f.sims[0].Flush()
		f.sims[0].Restart()
		f.sims[0].Up()
		l, err := second.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever})
		if err != nil {
			t.Fatal(err)
		}
		f.wantLost(first, lost, deadline-500*ms, redlock.LostQuorum)
		if early := deadline - l.Since(); early > 0 {
			t.Errorf("granted to another host %v before the deadline", early)
		}
		if l.Fence() <= fence {
			t.Errorf("fencing token %d after %d, want a larger one", l.Fence(), fence)
		}
		want(t, "release", l.Release(t.Context()), nil)
	})
}

// acquireBy acquires a lock and returns at the instant of the grant.
func (f *fleet) acquireBy(r redlock.Request) *redlock.Lease {
	f.Helper()
	l, err := f.q.Acquire(f.Context(), r)
	if err != nil {
		f.Fatalf("acquire %s: %v", r.Name, err)
	}
	return l
}

// Each way to lose a vote is noticed by the command that would have voted. It costs a quarantine
// of max_ttl from then on, and nothing else. Guards ballot.lua: the epoch; Lane.fail;
// judgeRestarted; withdrawal.
func TestNodesThatLoseVotes(t *testing.T) {
	for what, forgets := range map[string]func(*fleet){
		"FLUSHALL":                 func(f *fleet) { f.sims[0].Flush() },
		"a restart":                func(f *fleet) { f.sims[0].Restart() },
		"a restart from a dump":    func(f *fleet) { f.sims[0].Restore(f.sims[0].Snapshot()) },
		"another node's data":      func(f *fleet) { f.sims[0].Resync(f.sims[1]) },
		"no data":                  func(f *fleet) { f.sims[0].Resync(nil) },
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
			f.at(begin, longest+3*beat)
			f.wantState(f.q, 0, redlock.NodeReady)
			f.at(begin, 2*longest+beat)
			want(t, what+": the held lease", held.Err(), nil)
			want(t, what+": the node has the lock again", f.sims[0].Get("redlock:held") != "", true)
			f.release(held)
		})
	}
}

// counterOfX is the field with the fencing counter of redlock:x.
const counterOfX = "nj"

// Each daemon measures a quarantine with its own clock, from when it first saw the quarantine,
// and follows the daemon that finishes first. A second loss restarts it. Guards judgePending,
// epoch.lua.
func TestQuarantineOfTwoDaemons(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		begin := f.now()
		time.Sleep(time.Second)
		second := f.another(withQuarantine)
		defer second.Close()
		f.at(begin, 2*time.Second)
		f.q.Close() // now no daemon knows how long that one waited
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

// Traffic does not delay the end of a quarantine. Guards serve: the heartbeat.
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

// Admit ends a quarantine at once. If it cannot, its error says why.
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
		wantErr(t, "the node hangs", f.q.Admit(ctx, "b"), context.DeadlineExceeded)
	}, withQuarantine)
}

// Releases are also sent to a node without a vote. Guards Call.IsRelease.
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

// A quarantine lasts as long as the largest max_ttl of all hosts. This also holds on a host with a
// smaller one, which knows the larger one only from a marker. Guards judgePending: raiseMaxTTL.
func TestQuarantineOfLargestMaxTTL(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close() // its marker stays
		begin := f.now()
		short := f.another(withQuarantine)
		defer short.Close()
		short.Settle(t.Context())
		f.at(begin, 3*longest-ms)
		want(t, "ready", short.Status().Ready, 0)
		f.at(begin, 3*longest+2*beat)
		want(t, "ready in the end", short.Status().Ready, 3)
	}, withQuarantine, thrice)
}

// thrice sets max_ttl to three times the usual quarantine.
func thrice(o *redlock.Options) { o.MaxTTL = 3 * longest }

// A host with a smaller max_ttl is the first to see that the nodes lost their data. It does not
// get a lock that another host holds for longer, because that host writes its larger max_ttl into
// the marker. Guards judgePending: the larger max_ttl is written.
func TestQuarantineBegunByShorterMaxTTL(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(3*longest + 2*beat + 500*ms) // away from the heartbeats
		held := f.acquire(redlock.Request{Name: "x", TTL: 3 * longest})
		every(f.sims, flush)
		short := f.another(withQuarantine)
		defer short.Close()
		short.Settle(t.Context())
		l, err := short.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever})
		want(t, "error", err, nil)
		if early := held.Deadline() - l.Since(); early > 0 {
			t.Errorf("granted to another host %v before the deadline", early)
		}
	}, withQuarantine, thrice)
}
