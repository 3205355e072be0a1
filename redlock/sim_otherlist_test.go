package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// A host with one node takes locks on it, and another host has two new nodes in its list as well. It
// gets no lock on the new nodes alone, although they are a quorum of its list: the first node was
// admitted with another list. It gets none after an ADMIT either. Guards judgement.endQuarantine:
// errOtherList.
func TestNewNodesBesideAnotherList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		defer f.closeSims()
		one := f.another(withQuarantine, func(o *redlock.Options) { o.Nodes = o.Nodes[:1] })
		defer one.Close()
		for ; one.Status().Ready == 0; time.Sleep(beat) {
		}
		held, err := one.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest, Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		three := f.another(withQuarantine)
		defer three.Close()
		time.Sleep(3 * longest)
		if _, err := three.Acquire(t.Context(), redlock.Request{Name: "x", TTL: longest}); err == nil {
			t.Errorf("two hosts hold the lock; the first one for another %v", held.Validity())
		}
		f.wantState(three, 0, redlock.NodeRefused, "another node list")
		f.wantState(three, 1, redlock.NodeQuarantined, "another list of nodes is in use on a")
		wantErr(t, "ADMIT", three.Admit(t.Context(), "b"), redlock.ErrNotAdmitted)
		one.Close()
		f.sims[0].Do("DEL", nodeKey)
		time.Sleep(3 * longest)
		want(t, "nodes that are ready when none has another list", three.Status().Ready, 3)
	})
}
