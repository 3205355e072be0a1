package session

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/locktable"
)

func newTestRequest(names ...string) *lockRequest {
	h := &heldLease{}
	h.waiter.Init(names, locktable.Kind{}, false, &h.Requester, nil)
	return &lockRequest{heldLease: h}
}

// When a LOCK that has ended leaves the index, it does not remove a later LOCK of the same name.
func TestIndexKeepsTheLaterRequest(t *testing.T) {
	var k leaseIndex
	first, second, third := newTestRequest("a", "b"), newTestRequest("b", "c"), newTestRequest("c")
	k.addRequest(first, nil)
	if firsts := k.addRequest(second, map[*heldLease]bool{first.heldLease: true}); firsts != nil {
		t.Fatalf("a name of an ended lease counts as taken by %v", firsts)
	}
	k.removeRequest(first)
	if k.requests[first.indexKey("a")] != nil {
		t.Error("a name is still taken after its request left")
	}
	for _, later := range []*lockRequest{newTestRequest("b"), third} {
		if firsts := k.addRequest(later, nil); len(firsts) != 1 || firsts[0] != second {
			t.Errorf("%v: taken by %v, want the LOCK under way", later.waiter.Names, firsts)
		}
	}
	if k.removeRequest(second); !isClosed(second.done) {
		t.Error("done is not closed after the request left")
	}
	if firsts := k.addRequest(third, nil); firsts != nil {
		t.Errorf("after that the name is taken by %v", firsts)
	}
}

// Two requests that count on a lease may take it over at the same time.
func TestIndexTakeOverIsIdempotent(t *testing.T) {
	var k leaseIndex
	h := newTestRequest("a", "b").heldLease
	for range 2 {
		if before, err := k.takeOver(h); before != nil || err != nil || k.leases[h.indexKey("b")] != h {
			t.Errorf("takeOver: replaced %v, error %v", before, err)
		}
	}
}

// A lease that is granted after the index was closed is not added to it.
func TestClosedIndexAddsNothing(t *testing.T) {
	var k leaseIndex
	held, late := newTestRequest("a", "b").heldLease, newTestRequest("c").heldLease
	if before, open := k.add(held); before != nil || !open {
		t.Fatalf("the first lease: replaced %v, open %v", before, open)
	}
	if all := k.close(); len(all) != 1 || all[0] != held {
		t.Errorf("close returned %v, want one lease of two names", all)
	}
	if _, open := k.add(late); open || k.leases[late.indexKey("c")] != nil || k.leases[held.indexKey("a")] != nil {
		t.Errorf("a lease after close: open %v, the index has %v", open, k.all())
	}
	if again := k.close(); len(again) != 0 {
		t.Errorf("a second close returned %v", again)
	}
}
