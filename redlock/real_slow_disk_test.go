package redlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Real servers that sync each write to a slow disk read fast, but their votes come too late. They are
// down, and the reason says what is slow. They are ready again when the disk is fast.
func TestRealSlowDisk(t *testing.T) {
	s := newSite(t, 3, appending("always"), redlocktest.SlowDisk())
	h := s.newHost(durable)
	slowly := func(more time.Duration) {
		for _, server := range s.all {
			must(t, server.SetSyncTime(more))
		}
	}
	h.release(h.take(redlock.Request{Name: "x", TTL: quarantine}))
	slowly(hostTimeout + 100*ms)
	_, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
	wantErr(t, "every disk is slow", err, redlock.ErrNoQuorum)
	for _, server := range s.all {
		node := h.awaits(server.Name(), redlock.NodeDown)
		h.eventually("the reason is its disk", func() bool {
			node = h.of(server.Name())
			return strings.HasPrefix(fmt.Sprint(node.Reason), "writes take ") && strings.Contains(node.Reason.Error(), "if appendfsync is always")
		})
		if node.Write < hostTimeout || node.RTT > node.Write/2 {
			t.Errorf("%s writes in %v and reads in %v, want to read much faster", node.Name, node.Write, node.RTT)
		}
	}
	slowly(0)
	for _, server := range s.all {
		h.awaits(server.Name(), redlock.NodeReady)
	}
	h.release(h.take(redlock.Request{Name: "x", TTL: quarantine}))
}
