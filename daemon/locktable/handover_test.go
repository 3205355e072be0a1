package locktable

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// A host lets others go first when its streak was long enough. If no other host said that it waits,
// the streak may be much longer.
func TestStreakYields(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		streak       Streak
		granted, now time.Duration
		wanted       bool
		want         Streak
	}{
		{Streak{}, 1000 * ms, 1001 * ms, true, Streak{Grants: 1, Started: 1000 * ms}},
		{Streak{Grants: 1, Started: 1000 * ms}, 1090 * ms, 1099 * ms, true, Streak{Grants: 2, Started: 1000 * ms}},
		{Streak{Grants: 1, Started: 1000 * ms}, 1090 * ms, 1100 * ms, true, Streak{Yields: true}},
		{Streak{Grants: 1, Started: 1000 * ms}, 1090 * ms, 1999 * ms, false, Streak{Grants: 2, Started: 1000 * ms}},
		{Streak{Grants: 1, Started: 1000 * ms}, 1090 * ms, 2000 * ms, false, Streak{Yields: true}},
		{Streak{Grants: 14, Started: 1000 * ms}, 1014 * ms, 1015 * ms, true, Streak{Grants: 15, Started: 1000 * ms}},
		{Streak{Grants: 15, Started: 1000 * ms}, 1015 * ms, 1016 * ms, true, Streak{Yields: true}},
		{Streak{Grants: 15, Started: 1000 * ms}, 1015 * ms, 1016 * ms, false, Streak{Grants: 16, Started: 1000 * ms}},
		{Streak{Yields: true}, 2000 * ms, 2001 * ms, true, Streak{Grants: 1, Started: 2000 * ms}},
	} {
		if got := test.streak.Next(test.granted, test.wanted, test.now); got != test.want {
			t.Errorf("%+v after a grant at %v, now %v, wanted %v: %+v, want %+v", test.streak, test.granted, test.now, test.wanted, got, test.want)
		}
	}
}

// ClaimNext returns the next waiter if it wants exactly the same names, and no other waiter is before
// it in any of their queues.
func TestClaimNext(t *testing.T) {
	for _, test := range []struct {
		name   string
		holder *Waiter
		behind []*Waiter
		want   int // index in behind; -1: no waiter
	}{
		{"the next", newWaiter("a"), []*Waiter{newWaiter("a"), newWaiter("a")}, 0},
		{"the same names", newWaiter("a", "b"), []*Waiter{newWaiter("a", "b")}, 0},
		{"no waiter", newWaiter("a"), nil, -1},
		{"more names", newWaiter("a"), []*Waiter{newWaiter("a", "b"), newWaiter("a")}, -1},
		{"fewer names", newWaiter("a", "b"), []*Waiter{newWaiter("a")}, -1},
		{"names in another order", newWaiter("a", "b"), []*Waiter{newWaiter("b", "a")}, -1},
		{"a waiter between in one queue", newWaiter("a", "b"), []*Waiter{newWaiter("b"), newWaiter("a", "b")}, -1},
		{"a waiter between in the other queue", newWaiter("a", "b"), []*Waiter{newWaiter("a"), newWaiter("a", "b")}, -1},
		{"a reader", newWaiter("a"), []*Waiter{newWaiterOf(reader, "a")}, -1},
		{"of a reader", newWaiterOf(reader, "a"), []*Waiter{newWaiter("a")}, -1},
		{"of a slot", newWaiterOf(Kind{Slots: 2}, "a"), []*Waiter{newWaiter("a")}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := New()
			q.Join(test.holder)
			for i, p := range test.behind {
				p.Patient, p.Owner = true, Owner{Name: fmt.Sprint(i)}
				q.Join(p)
			}
			q.SetStreak(test.holder, Streak{Grants: 6})
			got := q.ClaimNext(test.holder, 0, false, 0)
			if slices.Index(test.behind, got) != test.want {
				t.Fatalf("claimed waiter %d, want %d", slices.Index(test.behind, got), test.want)
			}
			if got != nil && got.streak.Grants != 7 {
				t.Errorf("the waiter continues the streak %+v, want 7 grants", got.streak)
			}
			if again := q.ClaimNext(test.holder, 0, false, 0); again != nil {
				t.Error("claimed twice")
			}
		})
	}
}

// A waiter has a follower if the one directly behind it wants the same, and waits for it.
func TestHasFollower(t *testing.T) {
	for _, test := range []struct {
		name      string
		w, behind *Waiter
		patient   bool
		want      bool
	}{
		{"the same name", newWaiter("a"), newWaiter("a"), true, true},
		{"the same names", newWaiter("a", "b"), newWaiter("a", "b"), true, true},
		{"other names", newWaiter("a"), newWaiter("a", "b"), true, false},
		{"a reader", newWaiter("a"), newWaiterOf(reader, "a"), true, false},
		{"a TRY", newWaiter("a"), newWaiter("a"), false, false},
		{"no waiter", newWaiter("a"), newWaiter("b"), true, false},
	} {
		q, gone := New(), newWaiter("a")
		test.w.Patient, gone.Patient, test.behind.Patient = true, true, test.patient
		test.w.Owner, gone.Owner, test.behind.Owner = Owner{Name: "w"}, Owner{Name: "gone"}, Owner{Name: "behind"}
		for _, w := range []*Waiter{test.w, gone, test.behind} {
			q.Join(w)
		}
		q.Leave(gone, nil) // HasFollower skips it
		if got := q.HasFollower(test.w); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if q.HasFollower(test.behind) {
			t.Errorf("%s: the last waiter has a follower", test.name)
		}
	}
}

// testHandOver runs a hand-over step by step: a holder releases the lock, next waits for it, and
// behind waits behind next.
type testHandOver struct {
	q                    *Queue
	holder, next, behind *Waiter
	begun                *redlock.PendingAttempt
	owners               []string // the goroutines that had to abandon begun
	readyEarly           bool     // behind was ready before begun had an owner
}

func newTestHandOver() *testHandOver {
	h := &testHandOver{q: New(), holder: newWaiter("a"), next: newWaiter("a"), behind: newWaiter("a"), begun: &redlock.PendingAttempt{}}
	for i, p := range []*Waiter{h.holder, h.next, h.behind} {
		p.Patient, p.Owner = true, Owner{Name: fmt.Sprint(i)}
		h.q.Join(p)
	}
	return h
}

func (h *testHandOver) owned(by string) {
	h.owners = append(h.owners, by)
	h.readyEarly = h.readyEarly || isReady(h.behind)
}

// releaseSteps returns the steps of the goroutine that releases the lock.
func (h *testHandOver) releaseSteps() []func() {
	var claimed *Waiter
	return []func(){
		func() { claimed = h.q.ClaimNext(h.holder, 0, false, 0) },
		func() {
			if claimed != nil && !h.q.Deliver(claimed, h.begun) {
				h.owned("the releasing goroutine")
			}
		},
		func() { h.q.Leave(h.holder, nil) },
	}
}

// withdrawSteps returns the steps of a waiter that gives up.
func (h *testHandOver) withdrawSteps() []func() {
	return []func(){
		func() {
			if h.q.Withdraw(h.next) != nil {
				h.owned("the waiter that gave up")
			}
		},
		func() { h.q.Leave(h.next, nil) },
	}
}

// interleavings calls run with every order of a steps of one goroutine (true) and b steps of
// another one (false).
func interleavings(a, b int, order []bool, run func([]bool)) {
	if a+b == 0 {
		run(order)
	}
	if a > 0 {
		interleavings(a-1, b, append(slices.Clip(order), true), run)
	}
	if b > 0 {
		interleavings(a, b-1, append(slices.Clip(order), false), run)
	}
}

// A waiter gives up while the holder hands the lock over to it. In every order of their steps the
// begun attempt is abandoned once, and the waiter behind becomes ready only after that.
func TestBegunAttemptHasOneOwner(t *testing.T) {
	both := map[string]int{}
	interleavings(3, 2, nil, func(order []bool) {
		h := newTestHandOver()
		releaseSteps, withdrawSteps := h.releaseSteps(), h.withdrawSteps()
		for _, releases := range order {
			steps := &withdrawSteps
			if releases {
				steps = &releaseSteps
			}
			(*steps)[0]()
			*steps = (*steps)[1:]
		}
		want := 0
		if order[0] { // otherwise the waiter gave up before an attempt was begun for it
			want = 1
		}
		if len(h.owners) != want || h.readyEarly {
			t.Errorf("order %v: abandoned by %v, want %d; the waiter behind was ready before that: %v", order, h.owners, want, h.readyEarly)
		}
		if begun, _ := h.q.TakeAttempt(h.next); begun != nil {
			t.Errorf("order %v: the attempt can still be taken", order)
		}
		if !isReady(h.behind) {
			t.Errorf("order %v: the waiter behind is not ready", order)
		}
		for _, owner := range h.owners {
			both[owner]++
		}
	})
	if both["the releasing goroutine"] == 0 || both["the waiter that gave up"] == 0 {
		t.Errorf("the owners were %v, want both", both)
	}
}

// The waiter takes the begun attempt once, and nothing is left for Withdraw.
func TestBegunAttemptIsTakenOnce(t *testing.T) {
	h := newTestHandOver()
	for _, step := range h.releaseSteps() {
		if isReady(h.next) {
			break
		}
		step()
	}
	h.q.Leave(h.holder, nil)
	if begun, _ := h.q.TakeAttempt(h.next); begun != h.begun {
		t.Fatal("the begun attempt cannot be taken")
	}
	if begun, _ := h.q.TakeAttempt(h.next); begun != nil {
		t.Error("the attempt is taken twice")
	}
	if h.q.Withdraw(h.next) != nil {
		t.Error("Withdraw returns the attempt that was taken")
	}
	if isReady(h.behind) {
		t.Error("the waiter behind is ready, too")
	}
}

// The holder loses its lease before the hand-over. The claimed waiter becomes ready when the lease
// leaves the queue, which can be before or after Unclaim.
func TestUnclaim(t *testing.T) {
	for _, gone := range []bool{false, true} {
		h := newTestHandOver()
		q, next := h.q, h.q.ClaimNext(h.holder, 0, false, 0)
		if gone {
			q.Leave(h.holder, nil)
		}
		q.Unclaim(next)
		if isReady(next) != gone {
			t.Errorf("the holder has left: %v; the claimed waiter is ready: %v", gone, isReady(next))
		}
		q.Leave(h.holder, nil)
		if !isReady(next) || isReady(h.behind) {
			t.Errorf("at the end ready: the claimed waiter %v, the waiter behind %v; want only the first", isReady(next), isReady(h.behind))
		}
	}
}
