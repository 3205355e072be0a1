package redlock_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// sharing has requests for x that two clients can hold at the same time.
var sharing = map[string]redlock.Request{
	"readers": {Name: "x", TTL: 3 * time.Second, Shared: true, Keep: true},
	"slots":   {Name: "x", TTL: 3 * time.Second, Slots: 2, Keep: true},
}

// wantShared checks that n clients share x, on all nodes.
func (f *fleet) wantShared(what string, n int) {
	f.Helper()
	holders, err := f.q.Who(f.Context(), "x")
	want(f, what+": WHO", err, nil)
	want(f, what+": holders", len(holders), n)
	for _, h := range holders {
		want(f, what+": nodes", h.Held, len(f.sims))
	}
}

// Shared leases are extended, and set again on nodes that lost them. They outlive the loss of the
// nodes one after the other. Guards op q; extension.
func TestSharingIsRepaired(t *testing.T) {
	for what, r := range sharing {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			first, second := f.acquire(r), f.acquire(r)
			for i, sim := range f.sims {
				forget(sim)
				time.Sleep(2100 * ms) // two extensions: one finds it missing, one confirms it
				f.wantShared(name("%s, lost on node %d", what, i), 2)
			}
			want(t, what+": first", first.Err(), nil)
			want(t, what+": second", second.Err(), nil)
			f.release(first)
			f.release(second)
			synctest.Wait()
			f.wantNoKeys(what)
		})
	}
}

// The key lasts exactly as long as the longest lease that shares it, to exclude other clients,
// and no longer.
func TestSharingLastsAsLongAsTheLongest(t *testing.T) {
	for what, r := range sharing {
		simTest(t, 3, func(t *testing.T, f *fleet) {
			r.Keep = false
			long := f.acquire(r)
			r.TTL = time.Second
			f.acquire(r)
			want(t, what+": expiry of the key, as of the longest lease", f.sims[0].PTTL("redlock:x"), 3000)
			f.release(long)
			synctest.Wait() // a quorum has released it; this node may not be part of that quorum
			want(t, what+": expiry of the key without the longest lease", f.sims[0].PTTL("redlock:x"), 1000)
			time.Sleep(1001 * ms)
			f.wantNoKeys(what)
		})
	}
}

// Acquire finds a free slot at once while there is one, and no slot is granted twice. Guards
// FreeSlot, attempts.Slots.
func TestSlots(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		other := f.another()
		defer other.Close()
		other.Settle(t.Context())
		taken := map[int]*redlock.Lease{}
		for i := range 20 {
			q := []*redlock.Quorum{f.q, other}[i%2]
			l, err := q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: time.Second, Slots: 20})
			if err != nil {
				t.Fatalf("slot %d of 20: %v", i+1, err)
			}
			if taken[l.Slot()] != nil || l.Slot() < 1 || l.Slot() > 20 {
				t.Fatalf("slot %d was granted twice or is out of range", l.Slot())
			}
			taken[l.Slot()] = l
		}
		_, err := f.q.Acquire(t.Context(), redlock.Request{Name: "x", TTL: time.Second, Slots: 20})
		wantErr(t, "when all are taken", err, redlock.ErrHeld)
		holders, err := f.q.Who(t.Context(), "x")
		want(t, "WHO", err, nil)
		want(t, "holders", len(holders), 20)
		want(t, "slots", holders[0].Slots, 20)
		for _, l := range taken {
			f.release(l)
		}
		synctest.Wait()
		f.wantNoKeys("in the end")
	})
}

// Each slot has its own fencing counter. Guards target.counter.
func TestSlotsHaveOwnCounters(t *testing.T) {
	simTest(t, 3, func(t *testing.T, f *fleet) {
		last := map[int]uint64{}
		var held []*redlock.Lease
		for range 10 {
			l := f.acquire(redlock.Request{Name: "x", TTL: time.Second, Slots: 3})
			if l.Fence() <= last[l.Slot()] {
				t.Errorf("slot %d: fencing token %d after %d", l.Slot(), l.Fence(), last[l.Slot()])
			}
			last[l.Slot()] = l.Fence()
			n, _ := strconv.ParseUint(f.sims[0].Do("HGET", nodeKey, redlock.CounterFieldOf("redlock:x\x00"+strconv.Itoa(l.Slot()))).Str, 10, 64)
			want(t, "the counter of the slot", n, l.Fence())
			if held = append(held, l); len(held) == 3 {
				f.release(held[0])
				held = held[1:]
			}
		}
	})
}

// Several names get one token. It is larger than any earlier token of each name, and the counters
// of all names get it. Guards rare.lua: fenceAll; areRaised.
func TestSeveralNamesHaveOneFence(t *testing.T) {
	for what, r := range map[string]redlock.Request{
		"exclusive": {Names: []string{"x", "y"}, TTL: time.Second},
		"shared":    {Names: []string{"x", "y"}, TTL: time.Second, Shared: true},
	} {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			ahead := uint64(time.Now().Add(100 * 24 * time.Hour).UnixMicro())
			every(f.sims, func(s *redlocktest.Sim) { setCounter(s, ahead) }) // of x only
			l := f.acquire(r)
			want(t, what+": fencing token", l.Fence(), ahead+1)
			for i, sim := range f.sims {
				n, _ := strconv.ParseUint(sim.Do("HGET", nodeKey, redlock.CounterFieldOf("redlock:y")).Str, 10, 64)
				want(t, name("%s: counter of y on node %d", what, i), n, ahead+1)
			}
			f.release(l)
			if y := f.acquire(redlock.Request{Name: "y", TTL: time.Second}); y.Fence() <= l.Fence() {
				t.Errorf("%s: y alone: fencing token %d after %d", what, y.Fence(), l.Fence())
			}
		})
	}
}

// Each node grants all of several names or none. If one name is lost, all are lost. Guards op n;
// Ballot.Width; extension.byLease.
func TestSeveralAllOrNone(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		r := redlock.Request{Names: []string{"x", "y", "z"}, TTL: 3 * time.Second, Keep: true}
		foreign(f.sims[:3], "y", time.Second)
		j := f.record()
		_, err := f.q.Acquire(t.Context(), r)
		wantErr(t, "one of three is held", err, redlock.ErrHeld)
		for _, o := range j.of("r") {
			if o.node < 3 && f.sims[o.node].Get("redlock:x") != "" {
				t.Errorf("node %d has x but not y", o.node)
			}
		}
		time.Sleep(1001 * ms)
		l := f.acquire(r)
		for _, sim := range f.sims[:3] {
			sim.Do("DEL", "redlock:z")
			sim.Do("SET", "redlock:z", "another client", "PX", "60000")
		}
		<-l.Lost()
		want(t, "one of three is lost", l.Reason(), redlock.LostQuorum)

		l = f.acquire(redlock.Request{Names: []string{"a", "b"}, TTL: time.Second})
		every(f.sims[:3], func(s *redlocktest.Sim) { s.Do("DEL", "redlock:b") })
		wantErr(t, "release when one of two is lost", l.Release(t.Context()), redlock.ErrLost)
	})
}

// FORCE revokes a lock from all clients that share it, and reports the loss to all at once.
func TestForceOfAll(t *testing.T) {
	for what, r := range sharing {
		simTest(t, 5, func(t *testing.T, f *fleet) {
			leases := []*redlock.Lease{f.acquire(r), f.acquire(r)}
			holders, err := f.q.Force(t.Context(), "x")
			want(t, what+": FORCE", err, nil)
			want(t, what+": holders", len(holders), 2)
			synctest.Wait()
			for _, l := range leases {
				want(t, what+": reason", l.Reason(), redlock.LostForced)
			}
			f.wantNoKeys(what)
		})
	}
}

// Who shows each client that shares a lock, and marks it as shared.
func TestWhoShares(t *testing.T) {
	simTest(t, 5, func(t *testing.T, f *fleet) {
		for user, ttl := range map[string]time.Duration{"ann": time.Second, "bob": 2 * time.Second} {
			f.acquire(redlock.Request{Name: "x", TTL: ttl, Shared: true, Holder: redlock.Holder{Host: "web3", User: user}})
		}
		holders, err := f.q.Who(t.Context(), "x")
		want(t, "WHO", err, nil)
		users := map[string]bool{}
		for _, h := range holders {
			users[h.Holder.User] = h.Shared && h.Held == 5
		}
		want(t, "ann and bob", users["ann"] && users["bob"], true)
		_, err = f.q.Acquire(t.Context(), oneTry)
		want(t, "the error of a writer", err.Error(), "x: shared by others, one of them bob on web3")
	})
}
