package redlock_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// losses counts the reports of a lease's loss, and records their time.
type losses struct {
	count atomic.Int32
	at    atomic.Int64
}

func (f *fleet) watch(r redlock.Request) (*redlock.Lease, *losses) {
	f.Helper()
	seen := f.seeLosses(&r)
	return f.acquire(r), seen
}

// seeLosses counts the losses of the requested lease.
func (f *fleet) seeLosses(r *redlock.Request) *losses {
	seen := &losses{}
	r.OnLost = func(l *redlock.Lease) {
		seen.count.Add(1)
		seen.at.Store(int64(f.now()))
		select {
		case <-l.Lost():
		default:
			f.Error("OnLost was called before Lost was closed")
		}
	}
	return seen
}

// wantLost checks that the loss was reported once, at that instant, and that it is final.
func (f *fleet) wantLost(l *redlock.Lease, seen *losses, at time.Duration, reason redlock.LostReason) {
	f.Helper()
	synctest.Wait()
	want(f, "losses reported", seen.count.Load(), 1)
	want(f, "time from grant to loss", time.Duration(seen.at.Load())-l.Since(), at-l.Since())
	want(f, "reason", l.Reason(), reason)
	wantErr(f, "Err", l.Err(), redlock.ErrLost)
	wantErr(f, "Release", l.Release(f.Context()), redlock.ErrLost)
	wantErr(f, "Extend", l.Extend(f.Context(), 0), redlock.ErrLost)
	want(f, "losses reported in the end", seen.count.Load(), 1)
}

func (f *fleet) wantHeld(l *redlock.Lease, seen *losses) {
	f.Helper()
	synctest.Wait()
	want(f, "error of the lease", l.Err(), nil)
	want(f, "losses reported", seen.count.Load(), 0)
	if l.Validity() <= 0 {
		f.Errorf("validity %v, want more than 0", l.Validity())
	}
}

var kept3s = redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true}

// company is how much earlier than at a third of the ttl a single lease is extended: 5 ms to
// group it with others that are due then, less the keeper's millisecond.
const company = 4 * ms

// A lease is extended at a third of its ttl after its request or its last extension was sent. Its
// deadline counts from that instant too. Guards keeper.confirmed: `start+ttl`; grant: nextExtension.
func TestExtensionInstants(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		time.Sleep(300 * ms) // away from the heartbeats, whose round trip would add a delay
		f.delay(each(ms), each(2*ms))
		first := f.now()
		l, seen := f.watch(kept3s)
		j := f.record()
		f.at(first, 10*time.Second)
		asked := first
		for i, o := range j.on(0, "e") {
			asked += time.Second - company
			want(t, name("time from the request to extension %d", i), o.at-ms-first, asked-first)
		}
		want(t, "extensions at node a", len(j.on(0, "e")), 10)
		want(t, "extensions at node e", len(j.on(4, "e")) >= 9, true)
		want(t, "deadline after the last extension was sent", l.Deadline()-asked, 3*time.Second-32*ms)
		f.wantHeld(l, seen)
	})
}

// If a lease is granted after more than a third of its ttl (the host was stopped, or busy), it is
// extended at once. Otherwise it could be lost before its first extension. Guards grant:
// nextExtension.
func TestGrantedLateIsExtended(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		time.Sleep(300 * ms)
		f.delay(each(0), func(int) time.Duration { return 600 * ms })
		time.AfterFunc(10*ms, func() { f.delay(each(0), each(0)) })
		first := f.now()
		l, seen := f.watch(redlock.Request{Name: "x", TTL: time.Second, Keep: true})
		want(t, "granted after", l.Since()-first, 600*ms)
		f.at(first, 1500*ms)
		f.wantHeld(l, seen)
	}, func(o *redlock.Options) { o.NodeTimeout = 700 * ms })
}

// Leases that are due together are extended with few commands. Guards popDue, maxOps.
func TestExtensionsAreGrouped(t *testing.T) {
	const leases = 500
	simTest(t, 3, func(t *testing.T, f *fleet) {
		for i := range leases {
			f.acquire(redlock.Request{Name: name("x%d", i), TTL: 3 * time.Second, Keep: true})
		}
		j := f.record()
		time.Sleep(10*time.Second - 20*ms)
		for node, commands := range j.perNode() {
			if rounds := 10; commands > rounds*(leases/64+2) {
				t.Errorf("node %d: %d commands for %d rounds of %d leases, want 64 leases in a command", node, commands, rounds, leases)
			}
			want(t, "extensions", len(j.on(node, "e")), 10*leases)
		}
	})
}

// A failed extension does not affect a valid lease. It is retried soon. Guards keeper.retry.
func TestFailedExtensionIsRetried(t *testing.T) {
	for what, fault := range faults {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, seen := f.watch(kept3s)
			deadline := l.Deadline()
			f.at(l.Since(), 900*ms)
			every(f.sims[:3], fault.begin)
			f.at(l.Since(), 1500*ms)
			want(t, what+": deadline while nodes do not vote", l.Deadline(), deadline)
			f.wantHeld(l, seen)
			every(f.sims[:3], fault.end)
			time.Sleep(900 * ms) // 250 to connect, 300 and 50 to retry, and company for all
			if l.Deadline() == deadline {
				t.Errorf("%s: not extended 900 ms after the nodes voted again", what)
			}
			f.at(l.Since(), time.Minute)
			f.wantHeld(l, seen)
		})
	}
}

// fault is a way in which a node does not vote, without losing its keys.
type fault struct{ begin, end func(*redlocktest.Sim) }

var faults = map[string]fault{
	"hung":    {hang, resume},
	"down":    {down, up},
	"loading": {func(s *redlocktest.Sim) { s.Refuse("LOADING Redis is loading") }, func(s *redlocktest.Sim) { s.Refuse("") }},
}

// LOST is reported exactly at the deadline less the guard, whatever the nodes do. Guards
// Lease.lostAtLocked, onTimer.
func TestLostInstant(t *testing.T) {
	for what, fault := range faults {
		for guard, before := range map[time.Duration]time.Duration{0: 600 * ms, ms: ms, 1500 * ms: 1500 * ms} {
			simTest(t, 5, func(t *testing.T, f *fleet) {
				r := kept3s
				r.Guard = guard
				l, seen := f.watch(r)
				deadline := l.Deadline()
				every(f.sims[:3], fault.begin)
				f.at(deadline, -before-1)
				f.wantHeld(l, seen)
				select {
				case <-l.Lost():
				case <-time.After(time.Second):
					t.Errorf("%s, guard %v: LOST was not reported within a second", what, guard)
				}
				f.wantLost(l, seen, deadline-before, redlock.LostQuorum)
				want(t, "deadline", l.Deadline(), deadline)
			})
		}
	}
}

// If a minority of the nodes fails, no lease is lost, for however long it lasts.
func TestMinorityIsNotMissed(t *testing.T) {
	for _, fault := range faults {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, seen := f.watch(kept3s)
			every(f.sims[:2], fault.begin)
			f.at(l.Since(), time.Minute)
			f.wantHeld(l, seen)
			f.release(l)
			every(f.sims[:2], fault.end)
			time.Sleep(1100 * ms)
			f.wantNoKeys("released, and all nodes back")
		})
	}
}

// LOST is final: if an extension was sent before LOST and is confirmed after it, the lease stays
// lost. The keys that it extended are released at the stated deadline, not before. Guards
// Lease.extended: errAtLocked; onTimer.
func TestLostIsFinal(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second, Guard: time.Second})
		deadline := l.Deadline()
		f.at(deadline, -time.Second-10*ms)
		f.delay(func(int) time.Duration { return 5 * ms }, func(int) time.Duration { return 20 * ms })
		wantErr(t, "an extension that a quorum confirms 15 ms after LOST", l.Extend(t.Context(), 20*time.Second), redlock.ErrLost)
		want(t, "time from the deadline to the confirmation", f.now()-deadline, -time.Second+15*ms)
		f.wantLost(l, seen, deadline-time.Second, redlock.LostExpired)
		want(t, "deadline", l.Deadline(), deadline)
		f.delay(each(0), each(0))
		f.at(deadline, -1)
		want(t, "keys before the deadline", len(f.keys()), 5)
		f.at(deadline, ms)
		f.wantNoKeys("after the deadline")
	})
}

// Nodes that work again one instant after LOST change nothing.
func TestLostStaysLost(t *testing.T) {
	for what, fault := range faults {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, seen := f.watch(kept3s)
			deadline := l.Deadline()
			every(f.sims[:3], fault.begin)
			f.at(deadline, -600*ms+1)
			every(f.sims[:3], fault.end)
			f.wantLost(l, seen, deadline-600*ms, redlock.LostQuorum)
			time.Sleep(300 * ms)
			want(t, what+": keys of the lost lease before its deadline", len(f.keys()), 5)
			j := f.record()
			f.at(deadline, ms)
			f.wantNoKeys("after the deadline")
			time.Sleep(10 * time.Second)
			want(t, "extensions after LOST", len(j.of("e")), 0)
			want(t, "validity", l.Validity() < 0, true)
		})
	}
}

// If so many nodes lack the token that no quorum can hold it, LOST follows with the extension
// that finds this. Guards countRepliesLocked: `> spare`.
func TestTokenGone(t *testing.T) {
	for forgot, isLost := range map[int]bool{2: false, 3: true, 5: true} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, seen := f.watch(kept3s)
			deadline := l.Deadline()
			f.at(l.Since(), 500*ms)
			every(f.sims[:forgot], forget)
			if !isLost {
				f.at(l.Since(), time.Minute)
				f.wantHeld(l, seen)
				return
			}
			<-l.Lost()
			f.wantLost(l, seen, l.Since()+time.Second-company, redlock.LostQuorum)
			f.at(deadline, -1)
			want(t, "keys before the stated deadline", len(f.keys()), 5-forgot)
			f.at(deadline, ms)
			f.wantNoKeys("after the deadline")
		})
	}
}

// If half of the nodes lack the token, no quorum holds it.
func TestTokenGoneOnHalf(t *testing.T) {
	simTest(t, 4, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		every(f.sims[:2], forget)
		<-l.Lost()
		f.wantLost(l, seen, l.Since()+time.Second-company, redlock.LostQuorum)
	})
}

// An extension never shortens the deadline or the expiry of a key. A smaller ttl applies from the
// next deadline on. Guards extended: max; ballot.lua: GT.
func TestExtendShorter(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true})
		deadline := l.Deadline()
		want(t, "Extend", l.Extend(t.Context(), time.Second), nil)
		synctest.Wait()
		want(t, "deadline", l.Deadline(), deadline)
		want(t, "ttl", l.TTL(), time.Second)
		for _, sim := range f.sims {
			want(t, "expiry on the node", sim.PTTL("redlock:x"), 10_000)
		}
		f.at(deadline, time.Minute)
		f.wantHeld(l, seen)
		want(t, "validity is less than the shorter ttl", l.Validity() < time.Second, true)
		want(t, "Extend", l.Extend(t.Context(), 20*time.Second), nil)
		want(t, "validity with a longer ttl", l.Validity(), 20*time.Second-202*ms)
		f.release(l)
	})
}

// The guard stays as requested. Extend refuses a ttl that leaves no room for it, as Acquire does.
// (The lease would be lost between two extensions.)
func TestExtendWithGuard(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true, Guard: 4 * time.Second})
		wantErr(t, "5 s with a guard of 4 s", l.Extend(t.Context(), 5*time.Second), redlock.ErrRequest)
		want(t, "8 s with a guard of 4 s", l.Extend(t.Context(), 8*time.Second), nil)
		f.at(l.Since(), time.Minute)
		f.wantHeld(l, seen)
	})
}

func TestExtendFails(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 10 * time.Second})
		deadline := l.Deadline()
		for _, ttl := range []time.Duration{-1, 100*ms - 1, 30*time.Second + 1} {
			wantErr(t, "Extend by "+ttl.String(), l.Extend(t.Context(), ttl), redlock.ErrRequest)
		}
		every(f.sims[:3], hang)
		begin := f.now()
		wantErr(t, "three hang", l.Extend(t.Context(), 0), redlock.ErrNoQuorum)
		want(t, "took", f.now()-begin, 50*ms)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*ms, func() { cancel(errGone) })
		wantErr(t, "cancelled", l.Extend(ctx, 0), errGone)
		f.wantHeld(l, seen)
		want(t, "deadline", l.Deadline(), deadline)
		every(f.sims[:3], resume)
		time.Sleep(time.Second)
		every(f.sims[:3], func(s *redlocktest.Sim) { s.Refuse("LOADING") })
		f.sims[3].Hang()
		begin = f.now()
		wantNoQuorum(t, l.Extend(t.Context(), 0), redlock.FailedError, "a", "b", "c")
		want(t, "took, with three nodes that refuse and one that hangs", f.now()-begin, 0)
		every(f.sims[:3], func(s *redlocktest.Sim) { s.Refuse("") })
		f.sims[3].Resume()
		f.release(l)
		wantErr(t, "released", l.Extend(t.Context(), 0), redlock.ErrReleased)
	})
}

// The total holding time is limited: LOST comes before granted + max, and the keys last no longer
// than that, except for the time of the release. Guards capDeadline, extendable.
func TestMax(t *testing.T) {
	for _, c := range []struct{ ttl, max time.Duration }{
		{3 * time.Second, 5 * time.Second}, {3 * time.Second, time.Minute}, {10 * time.Second, 2 * time.Second}, {time.Second, 100 * ms},
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			l, seen := f.watch(redlock.Request{Name: "x", TTL: c.ttl, Max: c.max, Keep: true})
			end := l.Since() + c.max
			guard := min(c.ttl, c.max) / 5
			f.at(end, -guard-1)
			f.wantHeld(l, seen)
			f.at(end, -guard+1)
			f.wantLost(l, seen, end-guard, redlock.LostMax)
			want(t, "deadline after the grant", l.Deadline()-l.Since(), c.max)
			f.at(end, ms)
			f.wantNoKeys("after max")
		})
	}
}

// Extend does not set a ttl beyond the limit of the holding time either. Otherwise its guard
// would take up all of the remaining time.
func TestMaxWithLongerTTL(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: time.Second, Max: 2 * time.Second, Keep: true})
		end := l.Since() + 2*time.Second
		want(t, "Extend", l.Extend(t.Context(), 10*time.Second), nil)
		want(t, "ttl", l.TTL(), 2*time.Second)
		f.at(end, -400*ms-1)
		f.wantHeld(l, seen)
		f.at(end, -400*ms+1)
		f.wantLost(l, seen, end-400*ms, redlock.LostMax)
	})
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 2 * time.Second, Max: 10 * time.Second, Keep: true})
		end := l.Since() + 10*time.Second
		f.at(end, -5*time.Second)
		want(t, "Extend in the middle", l.Extend(t.Context(), 30*time.Second), nil)
		f.at(end, -time.Second-1)
		f.wantHeld(l, seen)
		want(t, "Extend by no other ttl", l.Extend(t.Context(), 0), nil)
		f.at(end, -time.Second+1)
		f.wantLost(l, seen, end-time.Second, redlock.LostMax)
	})
}

// The largest possible limit of the holding time is no limit.
func TestEndlessMax(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(redlock.Request{Name: "x", TTL: time.Second, Max: math.MaxInt64, Wait: math.MaxInt64, Keep: true})
		f.at(l.Since(), 10*time.Second)
		f.wantHeld(l, seen)
		want(t, "Extend", l.Extend(t.Context(), 5*time.Second), nil)
		want(t, "Release", l.Release(t.Context()), nil)
		next, _ := f.watch(redlock.Request{Name: "x", TTL: time.Second})
		want(t, "Release by the next holder", next.Release(t.Context()), nil)
	})
}

// If nodes fail, a lease with a limited holding time is lost because of the nodes, not the limit.
func TestMaxIsNotTheReason(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		r := kept3s
		r.Max = time.Minute
		l, seen := f.watch(r)
		every(f.sims, hang)
		<-l.Lost()
		f.wantLost(l, seen, l.Deadline()-600*ms, redlock.LostQuorum)
	})
}

// A lease without Keep ends after its ttl, and nobody extends it. Guards grant: `l.kept`.
func TestNotKept(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		j := f.record()
		l, seen := f.watch(redlock.Request{Name: "x", TTL: 3 * time.Second})
		<-l.Lost()
		f.wantLost(l, seen, l.Deadline()-600*ms, redlock.LostExpired)
		f.at(l.Deadline(), -1)
		want(t, "keys before the deadline", len(f.keys()), 5)
		f.at(l.Deadline(), ms)
		f.wantNoKeys("after the deadline")
		want(t, "extensions", len(j.of("e")), 0)
	})
}

// Close releases nothing, extends nothing and reports no loss: a daemon that restarts continues
// its leases. Guards lose: closed.
func TestCloseKeepsLeases(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		f.q.Close()
		want(t, "keys", len(f.keys()), 5)
		j := f.record()
		f.at(l.Deadline(), time.Minute)
		want(t, "losses reported", seen.count.Load(), 0)
		want(t, "operations after Close", len(j.of("e"))+len(j.of("r")), 0)
		wantErr(t, "Err after the deadline", l.Err(), redlock.ErrLost)
	})
}

// If the client's keeper loses a lease, the loss is reported once, like any other. Other clients
// get the lock at the stated deadline, not before. Guards Lease.Lose.
func TestLose(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l, seen := f.watch(kept3s)
		f.at(l.Since(), 1500*ms)
		l.Lose(redlock.LostBeat)
		f.wantLost(l, seen, l.Since()+1500*ms, redlock.LostBeat)
		l.Lose(redlock.LostBeat)
		next := f.acquire(redlock.Request{Name: "x", TTL: time.Second, Wait: redlock.Forever})
		if early := l.Deadline() - next.Since(); early > 0 {
			t.Errorf("granted to another client %v before the deadline", early)
		}
		want(t, "losses reported", seen.count.Load(), 1)
		f.release(next)
		released, unseen := f.watch(kept3s)
		wantErr(t, "Release", released.Release(t.Context()), nil)
		released.Lose(redlock.LostBeat)
		want(t, "losses reported of a released lease", unseen.count.Load(), 0)
	})
}
