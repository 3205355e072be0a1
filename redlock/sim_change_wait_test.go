package redlock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// While one node becomes three, the status says how long each wait lasts, and does not say that nodes are
// missing which nobody needs: both new nodes start new fencing counters, and the old node has its own.
// Guards fleet.noteSources, Quorum.untilVotes, Fleet.Progress.
func TestWaitsOfChangeEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		old := f.another(f.config("a", "a"))
		for ; old.Status().Ready < 1; time.Sleep(100 * ms) {
		}
		old.Close()
		joint := f.another(f.config("a", "abc"))
		defer joint.Close()
		// wait follows a step: it ends within the time that was said at any instant of it.
		wait := func(step redlock.ChangeStep) {
			t.Helper()
			var end time.Time
			for joint.Status().Change.Step == step {
				status := joint.Status()
				c := status.Change
				for _, node := range status.Nodes {
					if node.NeedsOthers() {
						t.Fatalf("%s: node %s needs %d other nodes, and there are %d", step, node.Name, node.SourcesNeeded, node.SourcesFound)
					}
				}
				if c.Left > 0 {
					if !strings.HasPrefix(c.Next(nil), "wait about ") {
						t.Errorf("%s: left %v, and the text is %q", step, c.Left, c.Next(nil))
					}
					end = time.Now().Add(c.Left)
				}
				time.Sleep(100 * ms)
			}
			if end.IsZero() || time.Since(end) > 2*beat {
				t.Errorf("%s ends %v after the time that was said", step, time.Since(end))
			}
		}
		time.Sleep(beat)
		wait(redlock.ChangeBegins)
		if err := joint.CommitChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := joint.Status().Change
		if first.Step != redlock.ChangeCommitted || first.Left < longest || !strings.Contains(first.Next(nil), "hosts with the old list may hold locks") {
			t.Errorf("after the commit: %+v: %s", first, first.Next(nil))
		}
		committed := time.Now()
		wait(redlock.ChangeCommitted)
		if took := time.Since(committed); took > first.Left+2*beat || took < first.Left-6*beat {
			t.Errorf("the change was done after %v; at the commit, %v were left", took, first.Left)
		}
	})
}

// A host asks the nodes before it takes one of the lists of a change. If too few answer, it asks again for
// some seconds, and then keeps what it has. Guards Quorum.CheckLists, Fleet.ServesLists.
func TestCheckLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		defer f.closeSims()
		old := f.another(f.config("abc", "abc"), named("web1"))
		for ; old.Status().Ready < 3; time.Sleep(100 * ms) {
		}
		before, after := []string{"a", "b", "c"}, []string{"a", "b", "d"}
		check := func(what string, q *redlock.Quorum, of []string, want string) {
			t.Helper()
			start := time.Now()
			err := q.CheckLists(t.Context(), of, of)
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
			if took := time.Since(start); took > 4*beat {
				t.Errorf("%s: it took %v", what, took)
			}
		}
		const early, late, unknown = "no vote before the change is done", "the old list gets no vote any more", "too few nodes say"
		if err := old.CheckLists(t.Context(), before, after); err != nil {
			t.Errorf("the first step: %v", err)
		}
		old.Close()
		joint := f.another(f.config("abc", "abd"), named("web1"))
		defer joint.Close()
		f.awaitStep(joint, redlock.ChangeBegun)
		check("begun, the new list", joint, after, early)
		check("begun, the old list", joint, before, "")
		every(f.sims[:2], down)
		time.Sleep(2 * beat)
		check("begun, the old list, and two nodes are down", joint, before, unknown)
		go func() {
			time.Sleep(beat)
			every(f.sims[:2], up)
		}()
		check("they come back meanwhile", joint, before, "")
		f.awaitStep(joint, redlock.ChangeBegun)
		if err := joint.CommitChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("committed, the old list", joint, before, late)
		check("committed, the new list", joint, after, early)
		f.awaitStep(joint, redlock.ChangeDone)
		check("done, the old list", joint, before, late)
		check("done, the new list", joint, after, "")
		every(f.sims, down)
		time.Sleep(2 * beat)
		check("done, and no node answers", joint, after, unknown)
	})
}
