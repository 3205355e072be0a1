package waitqueue

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
			got := q.ClaimNext(test.holder, Streak{Grants: 7}, false)
			if slices.Index(test.behind, got) != test.want {
				t.Fatalf("claimed waiter %d, want %d", slices.Index(test.behind, got), test.want)
			}
			if got != nil && got.streak.Grants != 7 {
				t.Errorf("it continues the streak %+v", got.streak)
			}
			if again := q.ClaimNext(test.holder, Streak{}, false); again != nil {
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
			t.Errorf("%s: the last one has a follower", test.name)
		}
	}
}

// handOverPlay runs a hand-over step by step: a holder releases the lock, next waits for it, and
// behind waits behind next.
type handOverPlay struct {
	q                    *Queue
	holder, next, behind *Waiter
	begun                *redlock.PendingAttempt
	owners               []string // the goroutines that had to abandon begun
	called               bool     // behind was ready before begun had an owner
}

func newHandOverPlay() *handOverPlay {
	play := &handOverPlay{q: New(), holder: newWaiter("a"), next: newWaiter("a"), behind: newWaiter("a"), begun: &redlock.PendingAttempt{}}
	for i, p := range []*Waiter{play.holder, play.next, play.behind} {
		p.Patient, p.Owner = true, Owner{Name: fmt.Sprint(i)}
		play.q.Join(p)
	}
	return play
}

func (play *handOverPlay) owned(by string) {
	play.owners = append(play.owners, by)
	play.called = play.called || isReady(play.behind)
}

// giver returns the steps of the goroutine that releases the lock.
func (play *handOverPlay) giver() []func() {
	var claimed *Waiter
	return []func(){
		func() { claimed = play.q.ClaimNext(play.holder, Streak{}, false) },
		func() {
			if claimed != nil && !play.q.Deliver(claimed, play.begun) {
				play.owned("the giver")
			}
		},
		func() { play.q.Leave(play.holder, nil) },
	}
}

// quitter returns the steps of a waiter that gives up.
func (play *handOverPlay) quitter() []func() {
	return []func(){
		func() {
			if play.q.Withdraw(play.next) != nil {
				play.owned("who gave up")
			}
		},
		func() { play.q.Leave(play.next, nil) },
	}
}

// interleavings calls play with every order of a steps of one goroutine (true) and b steps of
// another one (false).
func interleavings(a, b int, order []bool, play func([]bool)) {
	if a+b == 0 {
		play(order)
	}
	if a > 0 {
		interleavings(a-1, b, append(slices.Clip(order), true), play)
	}
	if b > 0 {
		interleavings(a, b-1, append(slices.Clip(order), false), play)
	}
}

// A waiter gives up while the holder hands the lock over to it. In every order of their steps the
// begun attempt is abandoned once, and the waiter behind becomes ready only after that.
func TestBegunHasOneOwner(t *testing.T) {
	both := map[string]int{}
	interleavings(3, 2, nil, func(order []bool) {
		play := newHandOverPlay()
		giver, quitter := play.giver(), play.quitter()
		for _, gives := range order {
			steps := &quitter
			if gives {
				steps = &giver
			}
			(*steps)[0]()
			*steps = (*steps)[1:]
		}
		want := 0
		if order[0] { // otherwise the waiter gave up before an attempt was begun for it
			want = 1
		}
		if len(play.owners) != want || play.called {
			t.Errorf("order %v: owned by %v, want %d; the one behind was called before that: %v", order, play.owners, want, play.called)
		}
		if begun, _ := play.q.TakeAttempt(play.next); begun != nil {
			t.Errorf("order %v: it can still be taken", order)
		}
		if !isReady(play.behind) {
			t.Errorf("order %v: the one behind is not called", order)
		}
		for _, who := range play.owners {
			both[who]++
		}
	})
	if both["the giver"] == 0 || both["who gave up"] == 0 {
		t.Errorf("owners were %v: one of the ways was not tried", both)
	}
}

// The waiter takes the begun attempt once, and nothing is left for Withdraw.
func TestBegunIsTakenOnce(t *testing.T) {
	play := newHandOverPlay()
	for _, step := range play.giver() {
		if isReady(play.next) {
			break
		}
		step()
	}
	play.q.Leave(play.holder, nil)
	if begun, _ := play.q.TakeAttempt(play.next); begun != play.begun {
		t.Fatal("it is not there")
	}
	if begun, _ := play.q.TakeAttempt(play.next); begun != nil {
		t.Error("it is taken twice")
	}
	if play.q.Withdraw(play.next) != nil {
		t.Error("it is taken, and abandoned")
	}
	if isReady(play.behind) {
		t.Error("the one behind is called, too")
	}
}

// The holder loses its lease before the hand-over. The claimed waiter becomes ready when the lease
// leaves the queue, which can be before or after Unclaim.
func TestPromiseTakenBack(t *testing.T) {
	for _, gone := range []bool{false, true} {
		play := newHandOverPlay()
		q, next := play.q, play.q.ClaimNext(play.holder, Streak{}, false)
		if gone {
			q.Leave(play.holder, nil)
		}
		q.Unclaim(next)
		if isReady(next) != gone {
			t.Errorf("the one before it is gone: %v; it is called: %v", gone, isReady(next))
		}
		q.Leave(play.holder, nil)
		if !isReady(next) || isReady(play.behind) {
			t.Errorf("at the end it is called: %v, the one behind: %v; want it alone", isReady(next), isReady(play.behind))
		}
	}
}
