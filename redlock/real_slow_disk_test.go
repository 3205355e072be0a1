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
	h := s.newHost(durable, func(o *redlock.Options) { o.NodeTimeout = time.Second })
	slowly := func(more time.Duration) {
		for _, server := range s.all {
			must(t, server.SetSyncTime(more))
		}
	}
	h.pair("x")
	slowly(2 * time.Second)
	for _, server := range s.all {
		h.eventually("the reason is the disk of "+server.Name(), func() bool {
			_, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
			wantErr(t, "every disk is slow", err, redlock.ErrNoQuorum)
			node := h.of(server.Name())
			reason := fmt.Sprint(node.Reason)
			return node.State == redlock.NodeDown && strings.HasPrefix(reason, "writes take ") && strings.Contains(reason, "if appendfsync is always")
		})
	}
	slowly(0)
	for _, server := range s.all {
		h.awaits(server.Name(), redlock.NodeReady)
	}
	h.pair("x")
}
