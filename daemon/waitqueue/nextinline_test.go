package waitqueue

import "testing"

// A writer is next in line only when all waiters before it hold the lock, and share it. If the nodes
// knew its intent earlier, they would also refuse readers of this host that are before it.
func TestNear(t *testing.T) {
	reader, writer := Kind{Shared: true}, Kind{}
	q := New()
	stand := func(k Kind) *Waiter {
		p := &Waiter{Patient: true}
		p.Init([]string{"a"}, k, true, &Requester{}, nil)
		p.Owner.Name = "owner" + string(rune('a'+q.searches))
		q.searches++
		if err := q.Join(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	near := func(p *Waiter) bool { return p.nextInLine != nil && isClosed(p.nextInLine) }
	first, second := stand(reader), stand(reader)
	w, behind, last := stand(writer), stand(reader), stand(writer)
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"two readers ask", func() {}, false},
		{"one holds", func() { q.Granted(first, testLease{}) }, false},
		{"both hold", func() { q.Granted(second, testLease{}) }, true},
	} {
		if step.do(); near(w) != step.want {
			t.Errorf("%s: the writer is near: %v, want %v", step.what, near(w), step.want)
		}
	}
	if near(last) || near(behind) {
		t.Error("who stands behind the writer is near, too")
	}
	q.Leave(first, nil)
	q.Leave(second, nil)
	q.Granted(w, testLease{})
	if near(last) {
		t.Error("a writer is near where the lock is held by one alone")
	}
}

// A writer is next in line when the last reader before it that does not hold the lock gives up.
func TestNearWhenAReaderGivesUp(t *testing.T) {
	q := New()
	all := line(q, reader, reader, Kind{})
	holds, asks, writer := all[0], all[1], all[2]
	q.Granted(holds, testLease{})
	if isClosed(writer.nextInLine) {
		t.Error("the writer is near while a reader asks")
	}
	if q.Leave(asks, nil); !isClosed(writer.nextInLine) {
		t.Error("the reader gave up, and the writer is not near")
	}
}

// Only an exclusive waiter can be next in line, not one that wants a slot.
func TestNearIsWhoWantsItAlone(t *testing.T) {
	q := New()
	all := line(q, reader, three)
	if q.Granted(all[0], testLease{}); all[1].nextInLine != nil {
		t.Error("one who wants a slot is near")
	}
}

// A writer behind an exclusive holder is not next in line: no reader could overtake it. It is if
// readers share one of its names, even if the others are held exclusively.
func TestNearWhereSomethingIsShared(t *testing.T) {
	q := New()
	all := line(q, Kind{}, Kind{})
	if q.Granted(all[0], testLease{}); isClosed(all[1].nextInLine) {
		t.Error("a writer is near where the lock is held by one alone")
	}
	q = New()
	shares, alone, both := newWaiterOf(reader, "a"), newWaiter("b"), newWaiter("a", "b")
	for _, p := range []*Waiter{shares, alone, both} {
		q.Join(p)
	}
	q.Granted(shares, testLease{})
	if q.Granted(alone, testLease{}); !isClosed(both.nextInLine) {
		t.Error("a writer is not near where one of his names is shared")
	}
}
