package session

import (
	"runtime"
	"sync"
	"testing"

	"github.com/redlockd/redlockd/daemon/locktable"
)

// A request for one name needs no gate. A request for several names takes the gate of its user.
func TestQueueGate(t *testing.T) {
	d := &Host{}
	gate := func(uid int, names ...string) *sync.Mutex {
		return d.gate(&locktable.Waiter{Names: names, Requester: &locktable.Requester{UID: uid}})
	}
	if gate(1, "a") != nil {
		t.Error("a request for one name has a gate")
	}
	if gate(1, "a", "b") == nil || gate(1, "a", "b") != gate(1, "c", "d", "e") || gate(1, "a", "b") == gate(2, "a", "b") {
		t.Error("want one gate for each user")
	}
}

// Only one request of a user at a time contends for the queue's mutex. Otherwise a request
// of another user would wait for thousands of them when they end at once.
func TestOneRequestOfAUserContends(t *testing.T) {
	d := &Host{}
	d.queueMu.Lock()
	defer d.queueMu.Unlock()
	for range 2 {
		go func() {
			w := &locktable.Waiter{Names: []string{"a", "b"}, Requester: &locktable.Requester{UID: 1}}
			d.inQueue(w, func(*locktable.Queue) {})
		}()
	}
	for d.userGates[1].TryLock() { // until the first user contends
		d.userGates[1].Unlock()
		runtime.Gosched()
	}
	if !d.userGates[2].TryLock() {
		t.Error("a request of another user waits for them")
	}
}
