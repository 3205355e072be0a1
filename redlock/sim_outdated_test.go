package redlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A node's address moves to another Redis, which is admitted and votes. Then it moves back to the
// former one, which kept running and knows nothing of these votes. The node is quarantined from
// then on. Guards incarnationRegister.noteSeen.
func TestFormerNodeReturns(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		held := f.acquire(redlock.Request{Name: "held", TTL: longest})
		want(t, "the replacement voted", f.sims[0].Get("redlock:held") != "", true)
		begin := f.now()
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined, "a former one is back")
		want(t, "withdrawals", f.q.Status().Counts.Withdrawals, 1)
		f.wantQuarantine(f.q, begin)
		wantErr(t, "the lease from before the move", held.Err(), redlock.ErrLost)
	})
}

// wantQuarantine checks that the first node's quarantine lasts its full time from begin.
func (f *fleet) wantQuarantine(q *redlock.Quorum, begin time.Duration) {
	f.Helper()
	f.at(begin, longest-ms)
	f.wantState(q, 0, redlock.NodeQuarantined)
	f.at(begin, longest+3*beat)
	f.wantState(q, 0, redlock.NodeReady)
}

// A quarantine that was seen only for a moment does not count the time while another Redis was at
// the address.
func TestFormerQuarantineReturns(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.sims[0].Move()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		begin := f.now()
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
		f.wantQuarantine(f.q, begin)
		want(t, "withdrawals", f.q.Status().Counts.Withdrawals, 1) // the quarantined one had no vote to withdraw
	})
}

// A daemon that started while the other Redis was at the address has never seen the former one.
// The last epoch that it saw is enough. Guards newWord and incarnationRegister.noteSeen.
func TestFormerNodeReturnsForNewDaemon(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.q.Close()
		later := f.another(withQuarantine)
		defer later.Close()
		time.Sleep(beat)
		f.wantState(later, 0, redlock.NodeReady)
		begin := f.now()
		f.sims[0].Move()
		time.Sleep(beat + 400*ms)
		f.wantState(later, 0, redlock.NodeQuarantined, "a former one is back")
		f.wantQuarantine(later, begin)
	})
}

// A daemon that started after the former Redis returned has seen no other Redis. The nodes report
// that there was one. Guards compareIncarnations and Lane.writeReports.
func TestNewDaemonMeetsFormerNode(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		f.sims[0].Move()
		time.Sleep(longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.q.Close()
		f.sims[0].Move()
		f.delay(each(0), each(ms)) // this node is seen before the reports of the others
		later := f.another(withQuarantine)
		defer later.Close()
		begin := f.now()
		time.Sleep(100 * ms)
		f.wantState(later, 0, redlock.NodeQuarantined, "a former one is back")
		f.wantState(later, 1, redlock.NodeReady)
		f.wantQuarantine(later, begin)
	})
}

// If a durable node starts with an older file of its own, without its later votes, a new daemon
// notices in the same way. Guards compareIncarnations.
func TestNewDaemonMeetsOlderFile(t *testing.T) {
	durableTest(t, 5, func(t *testing.T, f *fleet) {
		older := f.sims[0].Snapshot()
		f.sims[0].Flush()
		time.Sleep(2*longest + 3*beat)
		f.wantState(f.q, 0, redlock.NodeReady)
		f.q.Close()
		f.sims[0].Crash(true)
		f.sims[0].Restore(older)
		later := f.another(withQuarantine, durableNodes)
		defer later.Close()
		time.Sleep(beat)
		f.wantState(later, 0, redlock.NodeQuarantined)
	})
}

// Two hosts reach two Redises under one name, as when an address is changed host by host. Neither
// Redis has a vote until only one is left. Then its quarantine begins. Guards compareIncarnations.
func TestTwoNodesUnderOneName(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		moved := redlocktest.NewSim("a")
		defer moved.Close()
		moved.SetDelay(func() (request, reply time.Duration) { return 20 * ms, 0 }) // the other nodes are seen first
		time.Sleep(beat * 3 / 10)                                                   // this host looks between the other host's looks
		begin := f.now()
		other := f.another(withQuarantine, func(o *redlock.Options) { o.Nodes[0] = moved.Node() })
		defer other.Close()
		f.at(begin, beat+100*ms) // reported at once, and seen at the next look
		f.wantState(f.q, 0, redlock.NodeQuarantined, "its address is not the same on every host")
		want(t, "withdrawals", f.q.Status().Counts.Withdrawals, 1)
		for f.now() < begin+3*longest {
			time.Sleep(beat / 4)
			f.wantState(f.q, 0, redlock.NodeQuarantined)
			f.wantState(other, 0, redlock.NodeQuarantined)
		}
		f.wantState(other, 0, redlock.NodeQuarantined, "its address is not the same on every host")
		f.q.Close()
		time.Sleep(longest + 3*beat)
		f.wantState(other, 0, redlock.NodeReady)
		want(t, "all nodes are ready", other.Status().Ready, 5)
	})
}

// If a later incarnation of a node is known when its vote arrives, the vote does not count. Its
// release counts. Guards Lane.answerCall.
func TestSupersededVoteDoesNotCount(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		held := f.acquire(redlock.Request{Name: "held", TTL: longest})
		every(f.sims[3:], down)
		time.Sleep(beat / 2)
		every(f.sims[1:3], (*redlocktest.Sim).Cut) // from now on the host looks at these nodes at other times than at the first
		time.Sleep(beat / 2)
		looked := f.now() - beat/2
		later := redlock.LaterWord(f.sims[0].Do("HGET", nodeKey, "epoch").Str)
		every(f.sims[1:3], func(s *redlocktest.Sim) { s.Do("HSET", nodeKey, "words", "a="+later) })
		f.sims[0].SetDelay(func() (request, reply time.Duration) { return 0, 20 * ms })
		f.at(looked, beat-10*ms)
		releasing, err := held.BeginRelease()
		want(t, "BeginRelease", err, nil)
		_, err = f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest})
		wantErr(t, "attempt with no other node's vote", err, redlock.ErrNoQuorum)
		if !strings.Contains(err.Error(), "a: acquire: quarantined: another Redis") {
			t.Errorf("%v: want it to say why the first node has no vote", err)
		}
		want(t, "the release", releasing.Wait(t.Context()), nil)
		time.Sleep(200 * ms)
		f.wantState(f.q, 0, redlock.NodeQuarantined)
	})
}

// A host that did not see a node's quarantine accepts from other hosts that it has passed, or
// that an operator ended it (ADMIT). Guards incarnationRegister.noteSeen; withdrawal:
// restartedUnnoticed, by the word.
func TestAdmittedUnseen(t *testing.T) {
	for name, how := range map[string]struct{ restart, admit bool }{"passed": {}, "ended": {admit: true}, "restarted and ended": {true, true}} {
		t.Run(name, func(t *testing.T) {
			admittedTest(t, 5, func(t *testing.T, f *fleet) {
				var away atomic.Bool
				other := f.another(withQuarantine, unreachableWhile(&away))
				defer other.Close()
				time.Sleep(beat)
				f.wantState(other, 0, redlock.NodeReady)
				away.Store(true)
				f.sims[0].Flush()
				f.sims[0].Cut()
				if how.restart {
					f.sims[0].Restart()
				}
				time.Sleep(beat + 400*ms)
				f.wantState(f.q, 0, redlock.NodeQuarantined)
				if how.admit {
					want(t, "ADMIT", f.q.Admit(t.Context(), "a"), nil)
				} else {
					time.Sleep(longest + 3*beat)
				}
				f.wantState(f.q, 0, redlock.NodeReady)
				away.Store(false)
				time.Sleep(beat)
				f.wantState(other, 0, redlock.NodeReady)
				want(t, "withdrawals", other.Status().Counts.Withdrawals, 0)
			})
		})
	}
}

// unreachableWhile makes the first node unreachable while away is true.
func unreachableWhile(away *atomic.Bool) func(*redlock.Options) {
	return func(o *redlock.Options) {
		dial := o.Nodes[0].Dial
		o.Nodes[0].Dial = func(ctx context.Context) (redlock.Conn, error) {
			if away.Load() {
				return nil, syscall.EHOSTUNREACH
			}
			return dial(ctx)
		}
	}
}

// If one node claims that all others were replaced, the others still vote. This holds for known
// nodes, and for a daemon that has just started. Guards incarnationRegister.believedLocked and
// settleTime.
func TestLyingWordsSupersedeNoNode(t *testing.T) {
	for _, n := range []int{3, 5} {
		admittedTest(t, n, func(t *testing.T, f *fleet) {
			lies := make([]string, n)
			for i, sim := range f.sims {
				lies[i] = string(rune('a'+i)) + "=" + redlock.LaterWord(sim.Do("HGET", nodeKey, "epoch").Str)
			}
			f.sims[0].OnCommand(func(c redlock.Command) {
				f.sims[0].Do("HSET", nodeKey, "words", strings.Join(lies, ","))
			})
			f.delay(each(ms), each(0)) // this node answers before the others
			time.Sleep(beat)
			later := f.another(withQuarantine)
			defer later.Close()
			for range 4 * 20 {
				time.Sleep(beat / 20)
				want(t, "ready", f.q.Status().Ready, n)
			}
			want(t, "ready for a daemon that has just started", later.Status().Ready, n)
			want(t, "withdrawals", later.Status().Counts.Withdrawals+f.q.Status().Counts.Withdrawals, 0)
		})
	}
}

// If the third of three nodes has no vote, one node is enough to report that another was
// replaced: the two are the only possible quorum. Guards incarnationRegister.noteLook: voting.
func TestOneReportIsEnoughWithoutOtherVoters(t *testing.T) {
	for name, end := range map[string]func(*redlocktest.Sim){
		"down":    down,
		"flushed": flush,
		"refused": func(s *redlocktest.Sim) { s.SetInfo("role", "slave") },
	} {
		t.Run(name, func(t *testing.T) {
			admittedTest(t, 3, func(t *testing.T, f *fleet) {
				later := redlock.LaterWord(f.sims[0].Do("HGET", nodeKey, "epoch").Str)
				f.sims[1].Do("HSET", nodeKey, "words", "a="+later)
				time.Sleep(2 * beat)
				f.wantState(f.q, 0, redlock.NodeReady)
				end(f.sims[2])
				time.Sleep(2 * beat)
				f.wantState(f.q, 0, redlock.NodeQuarantined, "another Redis has come after this one")
			})
		})
	}
}
