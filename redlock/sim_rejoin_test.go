package redlock_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// changeAll makes a change of the nodes, host after host. If missed is not negative, that node is down
// from before the commit until all hosts have the new list.
func (f *fleet) changeAll(hosts []*rolledHost, before, after string, missed int) {
	for _, s := range hosts {
		s.restart(f.config(before, after))
		time.Sleep(700 * ms)
	}
	for _, s := range hosts {
		s.until(f.Context(), "begun", isStep(redlock.ChangeBegun))
	}
	if missed >= 0 {
		f.sims[missed].Down()
		time.Sleep(2 * beat)
	}
	hosts[0].tries(f.Context(), "commits", func(q *redlock.Quorum) error { return q.CommitChange(f.Context()) })
	for _, s := range hosts {
		s.until(f.Context(), "done", isStep(redlock.ChangeDone))
	}
	for _, s := range hosts {
		s.restart(f.config(after, after))
		time.Sleep(700 * ms)
	}
	if missed >= 0 {
		f.sims[missed].Up()
	}
}

// wantDone checks that nodes have stored one change, and that it is done.
func (f *fleet) wantDone(nodes string) {
	f.Helper()
	stages := map[string]bool{}
	for _, name := range nodes {
		stages[strings.Split(f.sims[name-'a'].Do("HGET", nodeKey, "epoch").Str, ":")[4]] = true
	}
	for stage := range stages {
		if len(stages) > 1 || !strings.HasSuffix(stage, ">done") {
			f.Errorf("a node of %s has %s, want one change that is done", nodes, stage)
		}
	}
}

// Nodes leave and join again with the state that they had then, while locks are held and contended for. One
// of them was down when the change was committed in which it left. No operator removes their state, and no
// lease is lost. Guards change.isLeftover, change.mayRejoin.
func TestNodesJoinAgain(t *testing.T) {
	for what, l := range map[string][3]string{
		"back":         {"abcde", "cde", "abcde"},
		"back to less": {"abcd", "cd", "bcd"},
		"to others":    {"abc", "bc", "abcdf"},
		"from one":     {"abc", "c", "abc"},
	} {
		for _, missed := range []int{-1, 0, 1} {
			if missed >= 0 && strings.Contains(l[1], string(rune('a'+missed))) {
				continue
			}
			t.Run(what, func(t *testing.T) {
				problems, trace := changeTest(t, lists{l[0], l[0]}, 1, func(f *fleet, hosts []*rolledHost, _ *rand.Rand) {
					f.changeAll(hosts, l[0], l[1], missed)
					time.Sleep(2 * longest)
					f.changeAll(hosts, l[1], l[2], -1)
					f.wantDone(l[2])
					for _, s := range hosts {
						want(t, s.name+": lost leases", s.losses, 0)
					}
				})
				for _, problem := range problems {
					t.Errorf("node %d was down: %s", missed, problem)
				}
				if t.Failed() {
					t.Log(strings.Join(trace, "\n"))
				}
			})
		}
	}
}

// A node that missed the commit of the change in which it left serves the list of before. That does not
// show that a change back to this list is done: a host that has slept, or that has this list too early, gets
// no lock while another host holds it. Guards change.complete, change.admits.
func TestNodeThatMissedTheCommitShowsNothing(t *testing.T) {
	t.Run("before the others join", func(t *testing.T) { missedTheCommit(t, false) })
	t.Run("after the others have joined", func(t *testing.T) { missedTheCommit(t, true) })
}

func missedTheCommit(t *testing.T, joined bool) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		joint := f.another(f.config("abc", "c"))
		for ; joint.Status().Change.Step != redlock.ChangeBegun; time.Sleep(100 * ms) {
		}
		f.sims[1].Down()
		time.Sleep(beat)
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		for ; joint.Status().Change.Step != redlock.ChangeDone; time.Sleep(100 * ms) {
		}
		joint.Close()
		one := f.another(f.config("c", "c"))
		defer one.Close()
		for ; one.Status().Ready < 1; time.Sleep(100 * ms) {
		}
		f.sims[1].Up()
		f.sims[0].Do("HDEL", nodeKey, "epoch")
		back := f.another(f.config("c", "abc"))
		defer back.Close()
		for ; joined && back.Status().Ready < 3; time.Sleep(100 * ms) {
		}
		for range 30 {
			r := redlock.Request{Name: "x", TTL: longest, Keep: true}
			held, err := one.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			slept := f.another(f.config("abc", "abc"))
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

// A node that left is down until the change in which it joins again is done. It serves the new list
// then. Guards change.complete.
func TestNodeJoinsAgainAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		change := func(before, after string) *redlock.Quorum {
			joint := f.another(f.config(before, after))
			for ; joint.Status().Change.Step != redlock.ChangeBegun; time.Sleep(100 * ms) {
			}
			if err := joint.CommitChange(t.Context()); err != nil {
				t.Fatal(err)
			}
			for ; joint.Status().Change.Step != redlock.ChangeDone; time.Sleep(100 * ms) {
			}
			return joint
		}
		change("abc", "bc").Close()
		f.sims[0].Down()
		joint := change("bc", "abc")
		f.sims[0].Up()
		time.Sleep(3 * beat)
		f.wantState(joint, 0, redlock.NodeReady)
		f.wantDone("abc")
		joint.Close()
		f.sims[1].Down()
		added := f.another(f.config("abc", "abc"))
		defer added.Close()
		if _, err := added.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest, Wait: longest}); err != nil {
			t.Error(err)
		}
	})
}

// A node whose clock jumped before it left has the marker of a quarantine. It joins again with it, and
// votes max_ttl later. Guards judgement.judgeUnserved.
func TestQuarantinedNodeJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		joint := f.another(f.config("abc", "bc"))
		for ; joint.Status().Change.Step != redlock.ChangeBegun; time.Sleep(100 * ms) {
		}
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		for ; joint.Status().Change.Step != redlock.ChangeDone; time.Sleep(100 * ms) {
		}
		f.sims[0].StepClock(time.Minute)
		time.Sleep(2 * beat)
		f.wantState(joint, 0, redlock.NodeQuarantined, "clock jumped")
		joint.Close()
		back := f.another(f.config("bc", "abc"))
		defer back.Close()
		time.Sleep(2 * beat)
		f.wantState(back, 0, redlock.NodeQuarantined, "clock jumped")
		time.Sleep(2*longest + 2*beat)
		f.wantState(back, 0, redlock.NodeReady)
		want(t, "step", back.Status().Change.Step, redlock.ChangeBegun)
	})
}

// Durable nodes that left are restarted with their data. They still refuse a host that slept with the list of
// before, and are not new nodes for it. Guards judgement.judgeRestarted.
func TestDurableNodesThatLeftStillRefuse(t *testing.T) {
	durableTest(t, 3, func(t *testing.T, f *fleet) {
		f.q.Close()
		joint := f.another(f.config("abc", "c"), durableNodes)
		for ; joint.Status().Change.Step != redlock.ChangeBegun; time.Sleep(100 * ms) {
		}
		if err := redlock.CommitUnchecked(joint); err != nil {
			t.Fatal(err)
		}
		for ; joint.Status().Change.Step != redlock.ChangeDone; time.Sleep(100 * ms) {
		}
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
