package session

import (
	"errors"
	"testing"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// Where two UNLOCKs of a lease meet, the second changes nothing of what is noted of the
// first: were that forgotten, the next daemon would not repeat it.
func TestSecondUnlockLeavesTheFirst(t *testing.T) {
	d := settledDaemon(t)
	h := &heldLease{}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	var err error
	if h.lease, err = d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: redlock.MinTTL}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.release(h, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := d.release(h, 2); !errors.Is(err, redlock.ErrReleased) {
		t.Errorf("the second: %v, want that it is released", err)
	}
	if !h.releasing {
		t.Error("the lease is not being given back any more")
	}
}
