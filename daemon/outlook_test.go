package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Whoever reads that there is no quorum is sent to ADMIT only where it would end that.
func TestOutlook(t *testing.T) {
	quarantined := redlock.NodeStatus{State: redlock.NodeQuarantined, Left: time.Second}
	here := quarantined
	here.Here = true
	for _, c := range []struct {
		what   string
		status redlock.Status
		want   string
		admit  bool
	}{
		{"new nodes", redlock.Status{Quorum: 1, Left: time.Second, Nodes: []redlock.NodeStatus{quarantined}}, "new or were restarted", true},
		{"this host was paused", redlock.Status{Quorum: 1, Left: time.Second, Nodes: []redlock.NodeStatus{here}}, "this host stood still", false},
		{"nodes are down", redlock.Status{Quorum: 1, Nodes: []redlock.NodeStatus{{State: redlock.NodeDown}}}, "until more nodes are ready", false},
		{"the last one", redlock.Status{Quorum: 1, Ready: 1}, "no further node may fail", false},
		{"one more", redlock.Status{Quorum: 1, Ready: 2}, "if 1 more node fails", false},
		{"two more", redlock.Status{Quorum: 1, Ready: 3}, "if 2 more nodes fail", false},
	} {
		got := outlook(c.status)
		if !strings.Contains(got, c.want) || strings.Contains(got, "ADMIT") != c.admit {
			t.Errorf("%s: %q, want %q, and ADMIT in it: %v", c.what, got, c.want, c.admit)
		}
	}
}
