package daemon

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/waitqueue"
)

func askFor(names ...string) *ask {
	h := &holding{}
	h.waiter.Init(names, waitqueue.Kind{}, false, &h.Requester, nil)
	return &ask{holding: h}
}

// A LOCK that is over, and is about to leave, takes nothing from the one that came after.
func TestDeskKeepsWhoCameAfter(t *testing.T) {
	var k desk
	first, second, third := askFor("a", "b"), askFor("b", "c"), askFor("c")
	k.enter(first, nil)
	if firsts := k.enter(second, map[*holding]bool{first.holding: true}); firsts != nil {
		t.Fatalf("the name of one that is over goes by %v", firsts)
	}
	k.answered(first)
	if k.asks[first.ident("a")] != nil {
		t.Error("a name of one that left is taken yet")
	}
	for _, later := range []*ask{askFor("b"), third} {
		if firsts := k.enter(later, nil); len(firsts) != 1 || firsts[0] != second {
			t.Errorf("%v goes by %v, want the LOCK that is under way", later.names(), firsts)
		}
	}
	if k.answered(second); !isClosed(second.done) {
		t.Error("who waits for its end is not told")
	}
	if firsts := k.enter(third, nil); firsts != nil {
		t.Errorf("after that it goes by %v", firsts)
	}
}

// Two that count on a lease may take it over at once.
func TestDeskTakesInOnce(t *testing.T) {
	var k desk
	h := askFor("a", "b").holding
	for range 2 {
		if before, err := k.takeIn(h); before != nil || err != nil || k.get(h.ident("b")) != h {
			t.Errorf("taken in: %v, %v", before, err)
		}
	}
}

// What is granted when all is given back already has no place any more.
func TestDeskIsClosed(t *testing.T) {
	var k desk
	held, late := askFor("a", "b").holding, askFor("c").holding
	if before, open := k.add(held); before != nil || !open {
		t.Fatalf("the first one: %v, %v", before, open)
	}
	if all := k.close(); len(all) != 1 || all[0] != held {
		t.Errorf("held were %v, want one of two names", all)
	}
	if _, open := k.add(late); open || k.get(late.ident("c")) != nil || k.get(held.ident("a")) != nil {
		t.Errorf("what came too late: open %v, and %v is held", open, k.all())
	}
	if again := k.close(); len(again) != 0 {
		t.Errorf("closed once more: %v", again)
	}
}
