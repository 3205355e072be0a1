package session

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// countedTwice returns a lease that is not granted yet, with a further LOCK that counts on it.
func countedTwice(t *testing.T) *heldLease {
	t.Helper()
	h := &heldLease{Requester: locktable.Requester{ID: "first"}, session: &session{}}
	h.waiter.Init([]string{"a"}, locktable.Kind{}, false, &h.Requester, nil)
	if again, err := h.countUp(&h.waiter, "further", true, nil); again || err != nil {
		t.Fatal(again, err)
	}
	return h
}

// If the wait= of a further LOCK ends just as the first is granted, the further LOCK counts. Its
// client gets a grant and sends two UNLOCKs. If the count was withdrawn, the first UNLOCK would end
// the lease.
func TestGrantBeforeWithdrawal(t *testing.T) {
	h := countedTwice(t)
	h.change(locktable.WasGranted, nil)
	if h.withdrawCount("further") || h.count() != 2 {
		t.Errorf("%d LOCKs count after the grant, want 2", h.count())
	}
	if left := h.countDown(); left != 1 {
		t.Errorf("%d are left after the first UNLOCK, want 1", left)
	}
}

// A LOCK that was withdrawn before the grant does not count.
func TestWithdrawalBeforeGrant(t *testing.T) {
	h := countedTwice(t)
	if !h.withdrawCount("further") || h.count() != 1 {
		t.Errorf("%d LOCKs count, want only the first", h.count())
	}
	h.change(locktable.WasGranted, nil)
	if left := h.countDown(); left != 0 {
		t.Errorf("%d are left after the first UNLOCK, want none", left)
	}
}

// A LOCK cannot count on a lease that was lost before its first LOCK has finished.
func TestNoCountOnLostLease(t *testing.T) {
	h := countedTwice(t)
	h.change(locktable.WasLost, nil)
	h.change(locktable.DeadlinePassed, nil)
	h.clearCounts()
	h.change(locktable.WasGranted, nil)
	if _, err := h.countUp(&h.waiter, "third", true, nil); !errors.Is(err, redlock.ErrReleased) || h.count() != 1 {
		t.Errorf("a LOCK after the loss: %v, and %d LOCKs count; want ErrReleased, and 1", err, h.count())
	}
}
