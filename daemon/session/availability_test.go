package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// The text does not promise the end of a quarantine by time alone if the node also needs other
// nodes.
func TestNodeTextOfQuarantine(t *testing.T) {
	node := redlock.NodeStatus{State: redlock.NodeQuarantined, Left: time.Second, SourcesNeeded: 2, Reason: &redlock.QuarantineError{Left: time.Second, Reason: errors.New("it is new")}}
	for found, want := range map[int]string{
		1: "it is new; after that, its fencing counters are to be copied from 2 other nodes that may vote, and there are 1: bring those up",
		2: "it is new; after that its votes count again",
	} {
		node.SourcesFound = found
		if got := nodeText(node); got != want {
			t.Errorf("found %d: %q, want %q", found, got, want)
		}
	}
}

// Without a quorum, the text suggests ADMIT only if ADMIT would help.
func TestOutlook(t *testing.T) {
	quarantined := redlock.NodeStatus{State: redlock.NodeQuarantined, Left: time.Second}
	here := quarantined
	here.OnlyHere = true
	wanting := quarantined
	wanting.SourcesNeeded, wanting.SourcesFound = 2, 1
	for _, c := range []struct {
		what   string
		status redlock.Status
		want   string
		admit  bool
	}{
		{"new nodes", redlock.Status{Quorum: 1, Left: time.Second, AllNew: true, Nodes: []redlock.NodeStatus{quarantined}}, "new or were restarted", true},
		{"nodes that were used before", redlock.Status{Quorum: 1, Left: time.Second, Nodes: []redlock.NodeStatus{quarantined}}, "do not end it earlier (ADMIT) while any host may hold a lock", false},
		{"one node is not seen yet", redlock.Status{Quorum: 2, Left: time.Second, AllNew: true, Nodes: []redlock.NodeStatus{quarantined, quarantined, {State: redlock.NodeDown}}}, "do not end it earlier", false},
		{"a node needs other nodes", redlock.Status{Quorum: 2, Ready: 1, Left: time.Second, Nodes: []redlock.NodeStatus{wanting}}, "after that not until more nodes are up", false},
		{"this host was suspended", redlock.Status{Quorum: 1, Left: time.Second, Nodes: []redlock.NodeStatus{here}}, "this host was stopped", false},
		{"nodes are down", redlock.Status{Quorum: 1, Nodes: []redlock.NodeStatus{{State: redlock.NodeDown}}}, "until more nodes are ready", false},
		{"no spare node", redlock.Status{Quorum: 1, Ready: 1}, "no further node may fail", false},
		{"one spare node", redlock.Status{Quorum: 1, Ready: 2}, "and 1 more node may fail", false},
		{"two spare nodes", redlock.Status{Quorum: 1, Ready: 3}, "and 2 more nodes may fail", false},
	} {
		got := availabilityText(c.status)
		if !strings.Contains(got, c.want) || strings.Contains(got, "ADMIT all") != c.admit {
			t.Errorf("%s: %q, want %q, and that it mentions ADMIT: %v", c.what, got, c.want, c.admit)
		}
	}
}
