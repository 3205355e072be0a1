package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If a node lost a key, the next extension that a quorum confirms sets it again, with the same
// expiry as on the other nodes, and sets the counter. Guards Lease.repair; ballot.lua: repair.
func TestRepair(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true})
		begin := f.now()
		every(f.sims[:2], forget)
		setCounter(f.sims[0], 7)
		f.at(begin, time.Second-10*ms)
		want(t, "keys before the extension", len(f.keys()), 3)
		f.at(begin, time.Second+10*ms)
		want(t, "keys after the extension", len(f.keys()), 5)
		for i, sim := range f.sims {
			if left := sim.PTTL("redlock:x"); left < 2980 || left > 3000 {
				t.Errorf("node %d: the key expires in %d ms, want 2980 to 3000", i, left)
			}
		}
		want(t, "counter of a repaired node", counter(f.sims[0]), l.Fence())
		want(t, "repairs counted", f.q.Status().Counts.Repairs, uint64(2))
		f.release(l)
		synctest.Wait()
		f.wantNoKeys("released")
	})
}

// A lease outlives the loss of all nodes, one after the other. Guards Lease.repair, and the
// quarantine of each node.
func TestLeaseOutlivesAllNodes(t *testing.T) {
	admittedTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: time.Second, Keep: true})
		fence := l.Fence()
		for _, sim := range f.sims {
			sim.Restart()
			time.Sleep(longest + 3*beat)
			want(t, "the key", sim.Get("redlock:x") != "", true)
		}
		want(t, "the lease", l.Err(), nil)
		f.release(l)
		if next := f.acquire(oneTryFor(time.Second)); next.Fence() <= fence {
			t.Errorf("fencing token %d after %d", next.Fence(), fence)
		}
	})
}

// A repaired node counts from the round after the repair. If three nodes lose the key at the same
// time, the lease is lost, not repaired. Guards extension: toRepairLocked.
func TestRepairIsNoVote(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true})
		every(f.sims[:3], forget)
		<-l.Lost()
		want(t, "reason", l.Reason(), redlock.LostQuorum)
		f.wantNeverOn(f.sims[:3], 3*time.Second)
	})
}

// wantNeverOn checks that no lock appears on these nodes.
func (f *fleet) wantNeverOn(sims []*redlocktest.Sim, span time.Duration) {
	f.Helper()
	for end := f.now() + span; f.now() < end; time.Sleep(ms) {
		for _, sim := range sims {
			if sim.Get("redlock:x") != "" {
				f.Fatal("an expired lease reappeared on a node")
			}
		}
	}
}

// A repair does not affect another client's lock. Guards ballot.lua: NX.
func TestRepairKeepsLockOfAnother(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true})
		forget(f.sims[0])
		foreign(f.sims[:1], "x", time.Hour)
		before := f.sims[0].Get("redlock:x")
		time.Sleep(4 * time.Second)
		want(t, "the other client's lock", f.sims[0].Get("redlock:x"), before)
		f.release(l)
	})
}

// A release follows a repair in progress, even if the repair is answered late or never. Guards
// Lease.repair: handed over under mu; placed.
func TestReleaseAfterRepair(t *testing.T) {
	for what, trouble := range map[string]func(*fleet){
		"slow": func(*fleet) {},
		"cut":  func(f *fleet) { f.sims[0].CutLate(15 * ms) },
		"hung": func(f *fleet) { f.sims[0].Hang(); time.AfterFunc(200*ms, f.sims[0].Resume) },
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l := f.acquire(redlock.Request{Name: "x", TTL: 3 * time.Second, Keep: true})
			begin := f.now()
			forget(f.sims[0])
			f.delay(func(int) time.Duration { return 10 * ms }, func(node int) time.Duration { return time.Duration(3-node) * ms })
			f.at(begin, time.Second+10*ms) // the extension was answered, or is about to be
			trouble(f)
			time.Sleep(5 * ms)
			_ = l.Release(t.Context()) // repeated if it is not answered
			time.Sleep(2 * time.Second)
			f.wantNoKeys(what)
		})
	}
}

// If a repair was never sent, the node may still have other keys of the lease. Guards markNotSent.
func TestReleaseAfterRepairNeverSent(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		var late atomic.Int64
		q := f.another(hearsLate(&late, 0, 1))
		defer q.Close()
		q.Settle(t.Context())
		l, err := q.Acquire(t.Context(), redlock.Request{Names: []string{"x", "y"}, TTL: 3 * time.Second, Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		granted := f.now()
		f.at(granted, time.Second-5*ms)
		late.Store(int64(30 * ms))
		f.sims[2].Do("DEL", "redlock:x")
		f.at(granted, time.Second+5*ms) // the node has reported that it lacks x, and the others have not answered
		f.sims[2].Hang()
		other := oneTryFor(time.Second)
		other.Name = "z"
		_, _ = q.Acquire(t.Context(), other) // the node hangs with this call, and the repair waits behind it
		f.sims[2].Down()
		late.Store(0)
		time.Sleep(50 * ms)
		want(t, "release", l.Release(t.Context()), nil)
		f.sims[2].Resume()
		f.sims[2].Up()
		time.Sleep(time.Second)
		f.wantNoKeys("when the node is up again")
	})
}

// A key that is set again expires at the same time as on the other nodes, however late the node
// reports that it lacks the key. Guards Lease.repair: ttl.
func TestRepairOfLateNode(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(kept3s)
		forget(f.sims[2])
		f.at(l.Since(), 900*ms)
		f.sims[2].SetDelay(func() (request, reply time.Duration) { return 0, 300 * ms })
		f.at(l.Since(), 1500*ms)
		want(t, "expiry of the key in ms, compared with another node", f.sims[2].PTTL("redlock:x"), f.sims[0].PTTL("redlock:x"))
		f.release(l)
	})
}

// If the ttl was shortened, a repaired key lasts until the deadline, which is unchanged. Guards
// Lease.repair: ttl.
func TestRepairAfterShorterTTL(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		l := f.acquire(redlock.Request{Name: "x", TTL: 10 * time.Second, Keep: true})
		forget(f.sims[2])
		want(t, "Extend", l.Extend(t.Context(), time.Second), nil)
		synctest.Wait()
		if left := time.Duration(f.sims[2].PTTL("redlock:x")) * ms; left < l.Validity() {
			t.Errorf("the key expires in %v, before the lease in %v", left, l.Validity())
		}
		f.release(l)
	})
}

// A repair that reaches its node late sets nothing, neither after the time limit of a vote nor
// after the deadline that it was meant for. Guards Lease.repair: notAfter.
func TestLateRepairSetsNothing(t *testing.T) {
	for _, c := range []struct{ nodeTimeout, way, ttl time.Duration }{
		{50 * ms, 60 * ms, 3 * time.Second},
		{200 * ms, 160 * ms, 300 * ms},
	} {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l := f.acquire(redlock.Request{Name: "x", TTL: c.ttl, Guard: ms})
			forget(f.sims[2])
			f.sims[2].SetDelay(func() (request, reply time.Duration) { return c.way, 0 })
			f.at(l.Since(), 50*ms)
			want(t, "Extend", l.Extend(t.Context(), 0), nil)
			f.wantNeverOn(f.sims[2:], time.Second)
			want(t, "repairs", f.q.Status().Counts.Repairs, uint64(1))
		}, func(o *redlock.Options) { o.NodeTimeout = c.nodeTimeout })
	}
}

// If FORCE revoked the lock on one node, without a quorum, that node gets no repair, whether it
// answers first or last. Guards toRepairLocked, noteHeldLocked.
func TestNoRepairAfterForce(t *testing.T) {
	for node := range 3 {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			l, seen := f.watch(kept3s)
			f.forceOn(node)
			f.delay(each(ms), each(ms))
			j := f.record()
			f.at(l.Since(), 3500*ms)
			f.wantHeld(l, seen)
			want(t, name("extensions on node %d", node), len(j.on(node, "e")), 3)
			want(t, name("repairs, forced on node %d", node), len(j.of("p")), 0)
			want(t, "repairs counted", f.q.Status().Counts.Repairs, uint64(0))
		})
	}
}

// forceOn makes another host revoke x: all nodes record that, and one of them deletes x.
func (f *fleet) forceOn(node int) {
	f.Helper()
	other := f.another()
	defer other.Close()
	other.Settle(f.Context())
	synctest.Wait() // its listeners start, too; then its next command is FORCE's
	for i, sim := range f.sims {
		sim.OnCommand(func(c redlock.Command) {
			if ops := operations(c); i != node && len(ops) > 0 && ops[0].letter == "z" {
				sim.DropRequests(1)
			}
		})
	}
	_, err := other.Force(f.Context(), "x")
	wantErr(f, "FORCE", err, redlock.ErrNoQuorum)
	synctest.Wait()
	want(f, "nodes that still have the lock", len(f.keys()), len(f.sims)-1)
}
