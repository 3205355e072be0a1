package session

import (
	"errors"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// The second of two concurrent UNLOCKs of a lease changes no record of the first. Otherwise the
// next daemon would not repeat the release.
func TestSecondUnlockLeavesTheFirst(t *testing.T) {
	d := readyHost(t)
	h := newTestLease(newTestSession(d), "a")
	h.Life.State = locktable.Held
	var err error
	if h.lease, err = d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: 10 * time.Second, Wait: -1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.undoLock(h, &server.Call{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.undoLock(h, &server.Call{}); !errors.Is(err, redlock.ErrReleased) {
		t.Errorf("the second UNLOCK: %v, want ErrReleased", err)
	}
	if h.Life.State != locktable.Releasing || change(h, locktable.Dropped).Has(locktable.DeleteRecord) {
		t.Errorf("the lease is in state %d, want releasing, and its record kept", h.Life.State)
	}
}
