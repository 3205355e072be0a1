package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A node whose clock is stepped may expire a key too early. That costs no more than that node's
// vote. Guards clockWatch, withdrawal.
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
			want(t, "the node's counter", f.sims[0].Do("HGET", nodeKey, counterOfX).Str, before)
			notices.want(t, redlock.ClockJumped, "a")
		}, notices.collect)
	}
}

// A clock that runs too fast or too slow is noticed like a stepped one. A clock within the
// allowance is never noticed. A node with such a clock jumps again after each quarantine, and its status
// says what to correct. A correct clock begins the count again. Guards clockWatch, countJump.
func TestClockRateIsWatched(t *testing.T) {
	for rate, isJump := range map[float64]bool{1.03: true, 0.97: true, 1.009: false, 0.991: false} {
		admittedTest(t, 5, func(t *testing.T, f *fleet) {
			f.delay(func(int) time.Duration { return 3 * ms }, func(int) time.Duration { return 4 * ms })
			f.sims[0].SetClockRate(rate)
			time.Sleep(10 * longest)
			want(t, fmt.Sprintf("clock jumps at a rate of %v", rate), f.q.Status().Counts.ClockJumps > 0, isJump)
			if !isJump {
				return
			}
			f.wantState(f.q, 0, redlock.NodeQuarantined, "soon after its quarantine, so it runs at a wrong rate")
			f.sims[0].SetClockRate(1)
			time.Sleep(3 * longest)
			f.wantState(f.q, 0, redlock.NodeReady)
			f.sims[0].StepClock(time.Minute)
			time.Sleep(2 * beat)
			f.wantState(f.q, 0, redlock.NodeQuarantined, "its clock jumped, so it may have released")
		})
	}
}

// settingsSeen is how soon a host sees what an operator has set on a node that votes.
const settingsSeen = 5*beat + 100*ms

// A node whose role, replicas or settings forbid it has no vote. Its status says why and what to
// do. If it lost nothing, it votes again at once. Guards refusal.
func TestRefusedNodes(t *testing.T) {
	for _, c := range []struct{ key, value, reason string }{
		{"connected_slaves", "1", "detach them"},
		{"cluster_enabled", "1", "cluster-enabled no"},
		{"redis_version", "6.2.6", "Redis 7 or later"},
		{"role", "slave", "REPLICAOF NO ONE"},
	} {
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			f.sims[0].SetInfo(c.key, c.value)
			time.Sleep(settingsSeen)
			f.wantState(f.q, 0, redlock.NodeRefused, c.reason)
			l := f.acquire(oneTryFor(time.Second))
			want(t, "keys on the node", len(f.sims[0].Keys()), 1)
			f.release(l)
			f.sims[0].SetInfo(c.key, "")
			time.Sleep(beat + 100*ms)
			f.wantState(f.q, 0, redlock.NodeReady)
		})
	}
}

// A node that lets scripts use only the keys that their call declares could grant a lock, but neither
// release it nor put a waiter into its queue. Guards refusal.
func TestStrictKeys(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetStrictKeys(true)
		time.Sleep(settingsSeen)
		f.wantState(f.q, 0, redlock.NodeRefused, "only the keys that they declare", "allow-undeclared-keys")
		l := f.acquire(oneTryFor(time.Second))
		want(t, "keys on the node", len(f.sims[0].Keys()), 1)
		f.release(l)
		f.sims[0].SetStrictKeys(false)
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}

// Eviction deletes locks only if memory is limited. Guards refusal.
func TestEvictingPolicy(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetInfo("maxmemory_policy", "allkeys-lru")
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[0].SetInfo("maxmemory", "1000000")
		time.Sleep(settingsSeen)
		f.wantState(f.q, 0, redlock.NodeRefused, "allkeys-lru", "noeviction")
	})
}

// Evicted keys may have been votes, whatever the policy is now. Guards withdrawal: evicted.
func TestEvictedKeys(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetInfo("maxmemory", "1000000")
		f.sims[0].SetInfo("maxmemory_policy", "volatile-ttl")
		time.Sleep(settingsSeen)
		f.wantState(f.q, 0, redlock.NodeRefused, "volatile-ttl")
		f.sims[0].SetInfo("evicted_keys", "1")
		f.sims[0].SetInfo("maxmemory_policy", "")
		time.Sleep(beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.sims[0].SetInfo("evicted_keys", "3") // none of these was a vote
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[0].SetInfo("evicted_keys", "") // CONFIG RESETSTAT
		time.Sleep(2 * beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[0].SetInfo("evicted_keys", "2")
		time.Sleep(beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
	})
}

// A node that was a replica for a while may have another node's data, or lack its own, so its
// epoch is withdrawn. Guards withdrawal: replID.
func TestFormerReplica(t *testing.T) {
	var notices notices
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		notices.drop()
		f.sims[0].SetInfo("master_replid", "8371445ab2ee4e5a3b63ab2aa8d1a3dbcbd00000")
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		notices.want(t, redlock.Withdrawn, "a")
		time.Sleep(longest + 2*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	}, notices.collect)
}

// If a node's uptime runs backwards, its clock was set back. Before that, the clock may have been
// ahead and keys may have expired early. Guards withdrawal: uptime.
func TestUptimeRunsBackwards(t *testing.T) {
	var notices notices
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetInfo("uptime_in_seconds", "3600")
		time.Sleep(settingsSeen)
		f.wantState(f.q, 0, redlock.NodeReady)
		notices.drop()
		f.sims[0].SetInfo("uptime_in_seconds", "3603") // five seconds later: uptime is cut to whole seconds
		time.Sleep(settingsSeen)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[0].SetInfo("uptime_in_seconds", "3605")
		time.Sleep(settingsSeen)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		notices.want(t, redlock.ClockJumped, "a")
	}, notices.collect)
}

// After a restart, a node keeps its votes only if it wrote every vote to its own file. Guards
// judgeRestarted, warnings.
func TestDurableNodes(t *testing.T) {
	durable := func(o *redlock.Options) {
		for i := range o.Nodes {
			o.Nodes[i].Durable = true
		}
	}
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		want(t, "warnings for a node that is not durable", len(f.nodeStatus(f.q, 0).Warning), 1)
		every(f.sims, func(s *redlocktest.Sim) { s.SetDurable(true) })
		time.Sleep(beat + 100*ms)
		want(t, "warnings for a durable node", len(f.nodeStatus(f.q, 0).Warning), 0)
		time.Sleep(longest) // earlier votes may not be in its file
		held := f.acquire(redlock.Request{Name: "x", TTL: longest})
		every(f.sims, func(s *redlocktest.Sim) { s.Crash(true); s.Restart() })
		time.Sleep(beat + 400*ms) // no lane notices sooner
		want(t, "ready after all were killed", f.q.Status().Ready, 3)
		_, err := f.q.Acquire(t.Context(), oneTryFor(time.Second))
		wantErr(t, "the earlier lock", err, redlock.ErrHeld)
		f.release(held)

		f.sims[1].Crash(true)
		f.sims[1].SetDurable(false)
		f.sims[1].Restart()
		f.sims[2].Crash(true)
		f.sims[2].Restore(f.sims[0].Snapshot()) // another node's file
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.wantState(f.q, 1, redlock.NodeQuarantined)
		f.wantState(f.q, 2, redlock.NodeQuarantined)
	}, durable)
}

// The fleet's max_ttl is the largest one of any host, and is written to the nodes before it is
// used. Guards judgeAdmitted, judgePending: raiseMaxTTL.
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
		f.acquire(redlock.Request{Name: "x", TTL: time.Second, Wait: time.Second}) // a changed epoch costs an attempt
		time.Sleep(2 * beat)
		want(t, "ready for the host with the smaller max_ttl", f.q.Status().Ready, 3)
		want(t, "max_ttl of the fleet", f.q.Status().MaxTTL, 3*longest)
		want(t, "warnings", len(f.q.Status().Warning), 1)
		lost := f.now()
		f.sims[0].Flush()
		f.at(lost, 3*longest-ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.wantState(longer, 0, redlock.NodeQuarantined)
		f.at(lost, 3*longest+3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}

// A file that was not written for a while lacks the votes of that time, whatever the process that
// loads it reports. Guards judgeRestarted: durability.from.
func TestNotDurableForAWhile(t *testing.T) {
	durable := func(o *redlock.Options) { o.Nodes[0].Durable = true }
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetDurable(true)
		time.Sleep(longest + beat + 100*ms)
		f.sims[0].SetDurable(false)
		time.Sleep(beat)
		f.sims[0].Crash(true)
		f.sims[0].SetDurable(true)
		f.sims[0].Restart()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
	}, durable)
}

// If a durable node starts with an older file of its own, from before it lost data, it lacks its
// later votes. Guards judgeRestarted: own, by the word.
func TestDurableNodeWithOlderFile(t *testing.T) {
	durable := func(o *redlock.Options) { o.Nodes[0].Durable = true }
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetDurable(true)
		time.Sleep(longest + beat + 100*ms)
		file := f.sims[0].Snapshot()
		f.sims[0].Flush()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.sims[0].Crash(true)
		f.sims[0].Restore(file)
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
	}, durable)
}

// If a durable node is restarted during its quarantine, the quarantine starts again: what the
// node lost is not in its file either. (Pending, runID and uptime each ensure this.)
func TestDurableNodeRestartedInQuarantine(t *testing.T) {
	durable := func(o *redlock.Options) { o.Nodes[0].Durable = true }
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.sims[0].SetDurable(true)
		time.Sleep(longest + beat + 100*ms)
		f.sims[0].Flush()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		restarted := f.now()
		f.sims[0].Crash(true)
		f.sims[0].Restart()
		f.at(restarted, longest-ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.at(restarted, longest+3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	}, durable)
}

// If a look finds that a node has no vote, the node does not grant a call that was sent during
// that look. Guards stand: the session's epoch.
func TestAcquireDuringLook(t *testing.T) {
	for name, end := range map[string]func(*redlocktest.Sim){
		"refused":     func(s *redlocktest.Sim) { s.SetInfo("connected_slaves", "1") },
		"quarantined": func(s *redlocktest.Sim) { s.Do("HDEL", nodeKey, "epoch") },
	} {
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			looked := make(chan struct{}, 10)
			f.sims[0].OnCommand(func(c redlock.Command) {
				if c[0] == "INFO" {
					looked <- struct{}{}
				}
			})
			f.sims[0].SetDelay(func() (request, reply time.Duration) { return 0, 5 * ms })
			end(f.sims[0])
			<-looked
			f.wantState(f.q, 0, redlock.NodeReady)
			f.acquire(redlock.Request{Name: "x", TTL: longest})
			time.Sleep(200 * ms)
			want(t, name+": the node granted", f.sims[0].Get("redlock:x") != "", false)
		})
	}
}

// A node that refuses to store words about the other nodes still votes, and the host retries.
// Guards Lane.writeReports.
func TestNodeThatRefusesWordsVotes(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		words := f.sims[0].Do("HGET", nodeKey, "words").Str
		f.sims[0].Do("HDEL", nodeKey, "words")
		dials := f.sims[0].Counts().Dials
		f.refusesToWrite(true)
		time.Sleep(3 * beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		want(t, "connections", f.sims[0].Counts().Dials, dials)
		f.refusesToWrite(false)
		time.Sleep(beat + 100*ms)
		want(t, "words in the end", f.sims[0].Do("HGET", nodeKey, "words").Str, words)
	})
}

// If a node refuses to store its epoch, its status says why it has no vote. If it has lost its
// scripts, the host loads them first. Guards rewrite, refuse.
func TestEpochIsRefused(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		f.refusesToWrite(true)
		f.sims[0].Do("HDEL", nodeKey, "epoch")
		time.Sleep(beat + 100*ms)
		f.wantState(f.q, 0, redlock.NodeRefused, "its epoch cannot be written: OOM")
		f.refusesToWrite(false)
		f.sims[0].Do("SCRIPT", "FLUSH")
		time.Sleep(beat)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
	})
}

// refusesToWrite makes the first node refuse, or accept, writes to its hash. (It decides at each
// command, because one may be in progress at this instant.)
func (f *fleet) refusesToWrite(does bool) {
	node := f.sims[0]
	node.OnCommand(func(c redlock.Command) {
		answer := redlock.ServerError("")
		if does && len(c) > 1 && c[1] == script.Scripts()[1].SHA {
			answer = "OOM command not allowed when used memory > 'maxmemory'."
		}
		node.Refuse(answer)
	})
}

// If others rewrite a node's epoch all the time, the host stops rewriting it, and the node has no
// vote. Guards verify: maxRewrites, errEpochContested.
func TestEpochWrittenByOthers(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		var writes atomic.Int32
		f.sims[0].OnCommand(func(c redlock.Command) {
			if c[0] == "EVALSHA" && c[3] == nodeKey {
				writes.Add(1)
			}
			f.sims[0].Do("HDEL", nodeKey, "epoch")
		})
		for writes.Load() == 0 {
			time.Sleep(ms)
		}
		synctest.Wait() // a look may be in progress at this instant
		want(t, "epoch writes", writes.Load(), 5)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "keep writing its epoch")
		f.sims[0].OnCommand(nil)
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
	})
}

// Nodes with two names for one server, another node list or another prefix have no vote. Guards
// judge.
func TestWrongNodeLists(t *testing.T) {
	admittedTest(t, 3, func(t *testing.T, f *fleet) {
		other := f.another(withQuarantine, func(o *redlock.Options) { o.Nodes = o.Nodes[:1] })
		defer other.Close()
		other.Settle(t.Context())
		f.wantState(other, 0, redlock.NodeRefused, "another node list", "HDEL")

		moved := f.another(withQuarantine, func(o *redlock.Options) { o.Prefix = "other:" })
		defer moved.Close()
		moved.Settle(t.Context())
		f.wantState(moved, 0, redlock.NodeRefused, "another key_prefix", "HDEL")

		words := f.sims[0].Do("HGET", nodeKey, "words").Str
		twice := f.another(withQuarantine, func(o *redlock.Options) {
			o.Nodes[1] = f.sims[0].Node()
			o.Nodes[1].Name = "b"
		})
		defer twice.Close()
		twice.Settle(t.Context())
		f.wantState(twice, 0, redlock.NodeReady)
		f.wantState(twice, 1, redlock.NodeRefused, `is node "a" already`)
		want(t, "its words about other nodes", f.sims[0].Do("HGET", nodeKey, "words").Str, words)

		f.sims[0].Do("HSET", nodeKey, "epoch", "version2:whatever")
		time.Sleep(2 * beat)
		f.wantState(f.q, 0, redlock.NodeRefused, "cannot read", "same version everywhere")
	})
}

// notices collects the notices of a Quorum.
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

// want checks that there was exactly one notice, of this kind.
func (n *notices) want(t testing.TB, kind redlock.NoticeKind, node string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) != 1 || n.all[0].Kind != kind || n.all[0].Node != node || n.all[0].Text == "" {
		t.Errorf("notices: %+v, want one %s of node %q", n.all, kind, node)
	}
}

// If most nodes' clocks jump by the same time, this host's clock was stopped. Its leases age by
// that time, it takes no locks for max_ttl, and no other host loses its votes. Guards judgeJump,
// Lease.age.
func TestPausedHost(t *testing.T) {
	var notices notices
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		var pause atomic.Int64 // how long this host's clock stood still
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
		want(t, "the deadline moved back by the missed time", l.Deadline() <= deadline-600*ms || l.Err() != nil, true)
		notices.want(t, redlock.HostClockJumped, "")
		want(t, "ready for the paused host", paused.Status().Ready, 0)
		want(t, "ready for the other host", f.q.Status().Ready, 5)
		<-l.Lost()
		if now := f.now(); now >= deadline {
			t.Errorf("LOST was reported at %v, after the true deadline %v", now, deadline)
		}
		time.Sleep(longest + 2*beat)
		want(t, "ready for the paused host later", paused.Status().Ready, 5)
		f.release(f.acquire(oneTryFor(time.Second)))
	})
}

// A short look, which a host sends to a node that votes, still finds within a second what costs a
// vote: evictions although nobody knew of a policy, another replication, another epoch. And it
// is short: four looks of five ask for two sections of INFO. Guards mayLookShort.
func TestShortLooks(t *testing.T) {
	for what, change := range map[string]func(*redlocktest.Sim){
		"evictions":   func(s *redlocktest.Sim) { s.SetInfo("evicted_keys", "1") },
		"replication": func(s *redlocktest.Sim) { s.SetInfo("master_replid", "8371445ab2ee4e5a3b63ab2aa8d1a3dbcbd00000") },
		"epoch":       func(s *redlocktest.Sim) { s.Do("HDEL", nodeKey, "epoch") },
	} {
		var short, long atomic.Int32
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			short.Store(0)
			long.Store(0)
			time.Sleep(20*beat - 100*ms)
			want(t, "whole looks", int(long.Load()), 4)
			if n := short.Load(); n < 15 || n > 16 {
				t.Errorf("short looks: got %d, want 15 or 16", n)
			}
			for range 9 { // the next whole look is as far away as it can be
				before := long.Load()
				time.Sleep(beat)
				if long.Load() != before {
					break
				}
			}
			change(f.sims[0])
			time.Sleep(beat)
			if s := f.nodeStatus(f.q, 0); s.State != redlock.NodeQuarantined {
				t.Errorf("%s: node a is %s a second later, want quarantined", what, s.State)
			}
		}, countLooks(&short, &long))
	}
}

// countLooks counts the looks at the first node.
func countLooks(short, long *atomic.Int32) func(*redlock.Options) {
	return func(o *redlock.Options) {
		dial := o.Nodes[0].Dial
		o.Nodes[0].Dial = func(ctx context.Context) (redlock.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return redlocktest.WithDo(c, func(ctx context.Context, commands []redlock.Command, replies []redlock.Reply) error {
				for _, command := range commands {
					if command[0] == "INFO" && len(command) == 3 {
						short.Add(1)
					} else if command[0] == "INFO" {
						long.Add(1)
					}
				}
				return c.Do(ctx, commands, replies)
			}), nil
		}
	}
}
