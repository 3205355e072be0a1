package session

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// countedTwice returns a lease that is not granted yet, with a further LOCK that counts on it.
func countedTwice(t *testing.T) (*locktable.Table, *heldLease) {
	t.Helper()
	table, h := locktable.NewTable(), newTestLease(newTestSession(nil), "a")
	h.ID = "first"
	if again, err := table.CountUp(&h.Lease, &h.Waiter, "further", true, false, nil); again || err != nil {
		t.Fatal(again, err)
	}
	return table, h
}

// If the wait= of a further LOCK ends just as the first is granted, the further LOCK counts. Its
// client gets a grant and sends two UNLOCKs. If the count was withdrawn, the first UNLOCK would end
// the lease.
func TestGrantBeforeWithdrawal(t *testing.T) {
	table, h := countedTwice(t)
	table.Apply(&h.Lease, locktable.WasGranted)
	if table.WithdrawCount(&h.Lease, "further") || h.Count() != 2 {
		t.Errorf("%d LOCKs count after the grant, want 2", h.Count())
	}
	if left := table.CountDown(&h.Lease); left != 1 {
		t.Errorf("%d are left after the first UNLOCK, want 1", left)
	}
}

// A LOCK that was withdrawn before the grant does not count.
func TestWithdrawalBeforeGrant(t *testing.T) {
	table, h := countedTwice(t)
	if !table.WithdrawCount(&h.Lease, "further") || h.Count() != 1 {
		t.Errorf("%d LOCKs count, want only the first", h.Count())
	}
	table.Apply(&h.Lease, locktable.WasGranted)
	if left := table.CountDown(&h.Lease); left != 0 {
		t.Errorf("%d are left after the first UNLOCK, want none", left)
	}
}

// A LOCK cannot count on a lease that was lost before its first LOCK has finished.
func TestNoCountOnLostLease(t *testing.T) {
	table, h := countedTwice(t)
	table.Apply(&h.Lease, locktable.WasLost)
	table.Apply(&h.Lease, locktable.DeadlinePassed)
	table.Apply(&h.Lease, locktable.WasGranted)
	if _, err := table.CountUp(&h.Lease, &h.Waiter, "third", true, false, nil); !errors.Is(err, redlock.ErrReleased) || h.Count() != 1 {
		t.Errorf("a LOCK after the loss: %v, and %d LOCKs count; want ErrReleased, and 1", err, h.Count())
	}
}
