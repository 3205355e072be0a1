package locktable

import (
	"errors"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

func newWaiter(names ...string) *Waiter { return newWaiterOf(Kind{}, names...) }

func isReady(p *Waiter) bool {
	if p.ready == nil {
		return p.isReady
	}
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// The next waiter knows how the attempt of the one before it failed. The obstacle of a waiter is the
// failure of the first one, or its lease.
func TestQueuePassesOnFailures(t *testing.T) {
	q := New()
	failure := errors.New("no quorum")
	first, second, third := newWaiter("a"), newWaiter("a"), newWaiter("a")
	for _, p := range []*Waiter{first, second, third} {
		q.Join(p)
	}
	q.NoteFailure(first, failure)
	if got := q.Obstacle(third); got.Failure != failure {
		t.Errorf("Obstacle(third) = %v, want %v", got, failure)
	}
	q.Leave(first, failure)
	if got := q.LastFailure(second); got != failure {
		t.Errorf("LastFailure(second) = %v, want %v", got, failure)
	}
	q.Granted(second)
	if got := q.Obstacle(third); got.Holder != second || got.Grant != (testLease{}) || got.Failure != nil {
		t.Errorf("Obstacle(third) = %v, want the lease of the second", got)
	}
	if waiting := q.Waiting(); len(waiting) != 1 || waiting[0] != third {
		t.Errorf("Waiting() = %v, want only the third", waiting)
	}
}

func TestQueueLeaveTwice(t *testing.T) {
	q := New()
	first, second, third := newWaiter("a"), newWaiter("a"), newWaiter("a")
	for _, p := range []*Waiter{first, second, third} {
		q.Join(p)
	}
	q.Leave(first, nil)
	q.Leave(first, nil)
	if !isReady(second) || isReady(third) {
		t.Errorf("ready: second %v, third %v; want only the second", isReady(second), isReady(third))
	}
}

// The next waiter continues the streak of this host. If the streak was long enough, it lets other
// hosts go first. Only an attempt that finds the lock held by another host ends the streak.
func TestStreakContinues(t *testing.T) {
	q := New()
	first, second, third := newWaiter("a"), newWaiter("a"), newWaiter("a")
	for _, p := range []*Waiter{first, second, third} {
		q.Join(p)
	}
	q.SetStreak(first, Streak{Yields: true})
	q.Leave(first, nil)
	if _, yields := q.TakeAttempt(second); !yields || q.Streak(third) != (Streak{}) {
		t.Errorf("the next waiter yields: %v, and the one behind has the streak %+v; want that only the next one yields", yields, q.Streak(third))
	}
	q.SetStreak(second, Streak{Grants: 7})
	q.NoteFailure(second, &redlock.NoQuorumError{})
	if got := q.Streak(second); got.Grants != 7 {
		t.Errorf("after no quorum: the streak is %+v, want that it continues", got)
	}
	q.NoteFailure(second, &redlock.HeldError{})
	if got := q.Streak(second); got != (Streak{}) {
		t.Errorf("after a lock held by another host: the streak is %+v, want that it has ended", got)
	}
}

// testLease is a lease that lasts.
type testLease struct{}

func (testLease) ID() string               { return "" }
func (testLease) TokenID() string          { return "" }
func (testLease) Passed() bool             { return false }
func (testLease) Err() error               { return nil }
func (testLease) Since() time.Duration     { return 0 }
func (testLease) Validity() time.Duration  { return time.Second }
func (testLease) EndsByItself() bool       { return false }
func (t testLease) Grant() Grant           { return t }
func (testLease) Request() redlock.Request { return redlock.Request{} }
func (testLease) Undelivered()             {}
