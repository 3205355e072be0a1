package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A node that missed the commit of the change in which it left serves the earlier list. That does not
// show that a change back to this list is done: a host that has slept, or that has this list too early, gets
// no lock while another host holds it. Guards change.complete, change.admits.
func TestNodeThatMissedTheCommitShowsNothing(t *testing.T) {
	for _, all := range []string{"abc", "abcd"} {
		t.Run(all+" before the others join", func(t *testing.T) { missedTheCommit(t, all, false) })
		t.Run(all+" after the others have joined", func(t *testing.T) { missedTheCommit(t, all, true) })
	}
}

func missedTheCommit(t *testing.T, all string, joined bool) {
	synctest.Test(t, func(t *testing.T) {
		last := all[len(all)-1:]
		f := newFleet(t, len(all))
		defer f.closeSims()
		joint := f.another(f.config(all, last))
		f.awaitStep(joint, redlock.ChangeBegun)
		f.sims[1].Down()
		time.Sleep(beat)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		one := f.another(f.config(last, last))
		defer one.Close()
		for ; one.Status().Ready < 1; time.Sleep(100 * ms) {
		}
		f.sims[1].Up()
		f.sims[0].Do("HDEL", nodeKey, "epoch")
		back := f.another(f.config(last, all))
		defer back.Close()
		for ; joined && back.Status().Ready < 3; time.Sleep(100 * ms) {
		}
		for range 30 {
			r := redlock.Request{Name: "x", TTL: longest, Keep: true}
			held, err := one.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			slept := f.another(f.config(all, all))
			r.Wait = time.Second
			if got, err := slept.Acquire(t.Context(), r); err == nil && held.Validity() > 0 {
				t.Fatalf("%v is granted while another host holds the lock", got.Fence())
			}
			want(t, "the lock of the host with the list in use is lost", held.Err(), nil)
			slept.Close()
			held.BeginRelease()
			time.Sleep(100 * ms)
		}
	})
}

// A change is done also if max_ttl is shorter than the time between two looks at a node. Guards change.evidenceLocked.
func TestChangeWithShortMaxTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		half := func(int) time.Duration { return ms }
		f.delay(half, half)
		joint := f.another(f.config("a", "abc"), func(o *redlock.Options) { o.MaxTTL = 500 * ms })
		defer joint.Close()
		time.Sleep(time.Minute)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, "step", joint.Status().Change.Step, redlock.ChangeDone)
	})
}

// One of three new nodes missed the end of a change, and another one loses its data before it is back. The third one
// shows that the new list is in use. So the first one serves it, and then there are enough to admit the second. Guards
// change.complete.
func TestMissedTheEndBesideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		defer f.closeSims()
		joint := f.another(f.config("e", "abc"))
		f.awaitStep(joint, redlock.ChangeBegun)
		f.sims[0].Down()
		time.Sleep(2 * beat)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		one := f.another(f.config("abc", "abc"))
		defer one.Close()
		for ; one.Status().Ready < 2; time.Sleep(100 * ms) {
		}
		f.sims[1].Flush()
		time.Sleep(beat)
		f.sims[0].Up()
		time.Sleep(4 * longest)
		want(t, "nodes that are ready for the new list", one.Status().Ready, 3)
	})
}

// Durable nodes that left are restarted with their data. They still refuse a host that slept with the earlier
// list, and are not new nodes for it. Guards judgement.judgeRestarted.
func TestDurableNodesThatLeftStillRefuse(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		joint := f.another(f.config("abc", "c"), durableNodes)
		f.awaitStep(joint, redlock.ChangeBegun)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		f.awaitStep(joint, redlock.ChangeDone)
		joint.Close()
		every(f.sims[:2], func(s *redlocktest.Sim) { s.Crash(true); s.Restart() })
		slept := f.another(f.config("abc", "abc"), durableNodes)
		defer slept.Close()
		for range 2 {
			time.Sleep(longest + 2*beat)
			f.wantState(slept, 0, redlock.NodeRefused, "has the old list")
			f.wantState(slept, 1, redlock.NodeRefused, "has the old list")
		}
	})
}
