package session

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// countedTwice is a LOCK that nothing is granted to yet, and on which another counts.
func countedTwice(t *testing.T) *heldLease {
	t.Helper()
	h := &heldLease{Requester: waitqueue.Requester{ID: "first"}, session: &session{}}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	if again, err := h.countUp(&h.waiter, "further", true, nil); again || err != nil {
		t.Fatal(again, err)
	}
	return h
}

// A further LOCK whose wait= is over just as the first is granted counts: its client is
// told so, and unlocks twice. Were it given up, the first UNLOCK would end the lease.
func TestGrantedBeforeItIsGivenUp(t *testing.T) {
	h := countedTwice(t)
	h.on(wasGranted)
	if h.withdrawCount("further") || h.count() != 2 {
		t.Errorf("granted to %d, want 2: none gives up any more", h.count())
	}
	if left, _ := h.countDown(); left != 1 {
		t.Errorf("%d are left after the first UNLOCK, want 1", left)
	}
}

// Given up before that, it counts no more.
func TestGivenUpBeforeItIsGranted(t *testing.T) {
	h := countedTwice(t)
	if !h.withdrawCount("further") || h.count() != 1 {
		t.Errorf("it counts: %d, want the first alone", h.count())
	}
	h.on(wasGranted)
	if left, _ := h.countDown(); left != 0 {
		t.Errorf("%d are left after the first UNLOCK, want none", left)
	}
}

// A lease that is lost before its LOCK has come to its end is nothing to count on.
func TestLostBeforeItBegins(t *testing.T) {
	h := countedTwice(t)
	h.on(wasLost)
	h.on(deadlinePassed)
	h.clearCounts()
	h.on(wasGranted)
	if _, err := h.countUp(&h.waiter, "third", true, nil); !errors.Is(err, redlock.ErrReleased) || h.count() != 1 {
		t.Errorf("one that counts up then: %v, %d count; want that the lease is over", err, h.count())
	}
}
