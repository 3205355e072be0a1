package daemon

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

func newPlace(names ...string) *place { return &place{names: names, who: &asker{}} }

func isCalled(p *place) bool {
	if p.turn == nil {
		return p.called
	}
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// TestQueueFirstComeFirstServed: every order of leaving calls the first of
// those that are left, and nobody else.
func TestQueueFirstComeFirstServed(t *testing.T) {
	q := newQueue()
	var line []*place
	for range 5 {
		p := newPlace("a")
		q.join(p)
		line = append(line, p)
	}
	for _, leaves := range []int{3, 0, 0, 1, 0} { // index among those that are left
		q.leave(line[leaves], nil)
		line = slices.Delete(line, leaves, leaves+1)
		for i, p := range line {
			if isCalled(p) != (i == 0) {
				t.Fatalf("after %d had left: place %d of %d: called %v", leaves, i, len(line), isCalled(p))
			}
		}
	}
	if len(q.lines) != 0 {
		t.Errorf("an empty queue keeps %d lines", len(q.lines))
	}
}

func TestQueueNamesAreApart(t *testing.T) {
	q := newQueue()
	a, b := newPlace("a"), newPlace("b")
	q.join(a)
	q.join(b)
	if !isCalled(a) || !isCalled(b) {
		t.Errorf("called: a %v, b %v; want both", isCalled(a), isCalled(b))
	}
}

// TestQueueSeveralNames: a place in several lines has its turn when it is
// first in all of them, and holds up the ones behind it in each.
func TestQueueSeveralNames(t *testing.T) {
	q := newQueue()
	a, ab, b := newPlace("a"), newPlace("a", "b"), newPlace("b")
	q.join(a)
	q.join(ab)
	q.join(b)
	if isCalled(ab) || isCalled(b) {
		t.Fatalf("called: ab %v, b %v; want neither", isCalled(ab), isCalled(b))
	}
	q.leave(a, nil)
	if !isCalled(ab) || isCalled(b) {
		t.Fatalf("after a left: called: ab %v, b %v; want ab alone", isCalled(ab), isCalled(b))
	}
	q.leave(ab, nil)
	if !isCalled(b) {
		t.Error("after ab left: b is not called")
	}
}

// Who wants one name passes no gate to the queue; others pass that of their user.
func TestQueueGate(t *testing.T) {
	q := newQueue()
	gate := func(uid int, names ...string) *sync.Mutex {
		p := &place{}
		p.set(names, kind{}, &asker{uid: uid})
		return q.gate(p)
	}
	if gate(1, "a") != nil {
		t.Error("there is a gate for who wants one name")
	}
	if gate(1, "a", "b") == nil || gate(1, "a", "b") != gate(1, "c", "d", "e") || gate(1, "a", "b") == gate(2, "a", "b") {
		t.Error("want one gate of each user")
	}
}

// TestQueuePassesOnWhatWasMet: who comes next knows what the one before met,
// and who only waits can say what the first in line meets.
func TestQueuePassesOnWhatWasMet(t *testing.T) {
	q := newQueue()
	met := errors.New("no quorum")
	first, second, third := newPlace("a"), newPlace("a"), newPlace("a")
	for _, p := range []*place{first, second, third} {
		q.join(p)
	}
	q.note(first, met)
	if got := q.ahead(third); got.met != met {
		t.Errorf("ahead(third) = %v, want %v", got, met)
	}
	q.leave(first, met)
	if got := q.metBy(second); got != met {
		t.Errorf("metBy(second) = %v, want %v", got, met)
	}
	h := &holding{}
	q.hold(second, h)
	if got := q.ahead(third); got.holder != h || got.met != nil {
		t.Errorf("ahead(third) = %v; want the holding", got)
	}
	if waiting := q.waiting(); len(waiting) != 1 || waiting[0] != third {
		t.Errorf("waiting() = %v, want the third alone", waiting)
	}
}

func TestQueueLeaveTwice(t *testing.T) {
	q := newQueue()
	first, second, third := newPlace("a"), newPlace("a"), newPlace("a")
	for _, p := range []*place{first, second, third} {
		q.join(p)
	}
	q.leave(first, nil)
	q.leave(first, nil)
	if !isCalled(second) || isCalled(third) {
		t.Errorf("called: second %v, third %v; want the second alone", isCalled(second), isCalled(third))
	}
}

// Who comes next goes on with the row of this host, and lets other hosts go first where it
// was long enough. Where one of those was met it is over, by nothing else.
func TestQueueRowGoesOn(t *testing.T) {
	q := newQueue()
	first, second, third := newPlace("a"), newPlace("a"), newPlace("a")
	for _, p := range []*place{first, second, third} {
		q.join(p)
	}
	q.setRow(first, row{yields: true})
	q.leave(first, nil)
	if _, yields := q.take(second); !yields || q.rowOf(third) != (row{}) {
		t.Errorf("the next one yields: %v, and the one behind has the row %+v; want that the next yields", yields, q.rowOf(third))
	}
	q.setRow(second, row{n: 7})
	q.note(second, &redlock.NoQuorumError{})
	if got := q.rowOf(second); got.n != 7 {
		t.Errorf("met no quorum: the row %+v, want that it goes on", got)
	}
	q.note(second, &redlock.HeldError{})
	if got := q.rowOf(second); got != (row{}) {
		t.Errorf("met another host: the row %+v, want that it is over", got)
	}
}
