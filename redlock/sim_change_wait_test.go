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
