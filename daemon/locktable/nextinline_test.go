package locktable

import "testing"

// A writer is next in line only when all waiters before it hold the lock, and share it. If the nodes
// had its entry earlier, they would also refuse readers of this host that are before it.
func TestNextInLine(t *testing.T) {
	reader, writer := Kind{Shared: true}, Kind{}
	q := New()
	join := func(k Kind) *Waiter {
		p := &Waiter{Patient: true}
		p.init([]string{"a"}, k, true, &Requester{}, testLease{})
		p.Owner.Name = "owner" + string(rune('a'+q.searches))
		q.searches++
		if err := q.Join(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	isNext := func(p *Waiter) bool { return p.nextInLine != nil && isClosed(p.nextInLine) }
	first, second := join(reader), join(reader)
	w, behind, last := join(writer), join(reader), join(writer)
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"two readers wait", func() {}, false},
		{"one holds", func() { q.Granted(first) }, false},
		{"both hold", func() { q.Granted(second) }, true},
	} {
		if step.do(); isNext(w) != step.want {
			t.Errorf("%s: the writer is next: %v, want %v", step.what, isNext(w), step.want)
		}
	}
	if isNext(last) || isNext(behind) {
		t.Error("a waiter behind the writer is next, too")
	}
	q.Leave(first, nil)
	q.Leave(second, nil)
	q.Granted(w)
	if isNext(last) {
		t.Error("a writer is next behind an exclusive holder")
	}
}

// A writer is next in line when the last reader before it that does not hold the lock gives up.
func TestNextInLineWhenAReaderGivesUp(t *testing.T) {
	q := New()
	all := joinAll(q, reader, reader, Kind{})
	holds, asks, writer := all[0], all[1], all[2]
	q.Granted(holds)
	if isClosed(writer.nextInLine) {
		t.Error("the writer is next while a reader before it does not hold the lock")
	}
	if q.Leave(asks, nil); !isClosed(writer.nextInLine) {
		t.Error("the reader gave up, and the writer is not next")
	}
}

// Only an exclusive waiter can be next in line, not one that wants a slot.
func TestOnlyExclusiveWaitersAreNextInLine(t *testing.T) {
	q := New()
	all := joinAll(q, reader, three)
	if q.Granted(all[0]); all[1].nextInLine != nil {
		t.Error("a waiter for a slot is next")
	}
}

// A writer behind an exclusive holder is not next in line: no reader could overtake it. It is if
// readers share one of its names, even if the others are held exclusively.
func TestNextInLineNeedsASharedHolder(t *testing.T) {
	q := New()
	all := joinAll(q, Kind{}, Kind{})
	if q.Granted(all[0]); isClosed(all[1].nextInLine) {
		t.Error("a writer is next behind an exclusive holder")
	}
	q = New()
	shares, alone, both := newWaiterOf(reader, "a"), newWaiter("b"), newWaiter("a", "b")
	for _, p := range []*Waiter{shares, alone, both} {
		q.Join(p)
	}
	q.Granted(shares)
	if q.Granted(alone); !isClosed(both.nextInLine) {
		t.Error("a writer is not next though readers share one of its names")
	}
}
