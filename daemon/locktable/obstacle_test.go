package locktable

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// A waiter that leaves before it was ready made no attempt, so it passes no failure on.
func TestNoFailureOfAWaiterThatWasNotReady(t *testing.T) {
	q := New()
	holder, waiter, passing := newWaiter("a"), newWaiter("a", "b"), newWaiter("b")
	for _, p := range []*Waiter{holder, waiter, passing} {
		q.Join(p)
	}
	q.Leave(passing, &redlock.HeldError{Name: "b"})
	if got := q.LastFailure(waiter); got != nil {
		t.Errorf("the failure of the waiter before is %v, want none", got)
	}
}

// A failure of the first waiter on the nodes is the obstacle of waiters that want the same names. A
// waiter that wants fewer names is blocked by the first waiter, if the failure was a held lock.
func TestObstacleIsAFailureOnTheNodes(t *testing.T) {
	held, none := &redlock.HeldError{Name: "a,b"}, &redlock.NoQuorumError{Name: "a,b"}
	for _, tt := range []struct {
		names   string
		failure error
		same    bool // the waiter would fail likewise
	}{{"a,b", held, true}, {"b", held, false}, {"b", none, true}} {
		q := New()
		first, p := newWaiter("a", "b"), newWaiter(strings.Split(tt.names, ",")...)
		q.Join(first)
		q.Join(p)
		q.NoteFailure(first, tt.failure)
		if got := q.Obstacle(p); got.Failure != tt.failure || (got.Waiter == nil) != tt.same {
			t.Errorf("%s behind a,b, which failed with %v: got %+v, want only the failure: %v", tt.names, tt.failure, got, tt.same)
		}
	}
}
