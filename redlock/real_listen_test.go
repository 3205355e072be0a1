package redlock_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// If a node ends a listener, the host notices it then, not at the next ping. The waiter retries,
// because it may have missed a call. Guards redisListener.watch.
func TestRealListenersKilled(t *testing.T) {
	s, hosts := threeHosts(t)
	l, err := hosts[0].Acquire(t.Context(), redlock.Request{Name: "x", TTL: 29 * time.Second, Keep: true})
	must(t, err)
	var tries atomic.Int64
	granted := make(chan time.Time, 1)
	go func() {
		r := redlock.Request{Name: "x", TTL: 29 * time.Second, Wait: redlock.Forever, Failed: func(error) { tries.Add(1) }}
		if l, err := hosts[1].Acquire(t.Context(), r); err == nil {
			granted <- time.Now()
			l.BeginRelease()
		}
	}()
	hosts[1].eventually("the client waits", func() bool { return tries.Load() >= 2 })
	killListeners(s)
	before := tries.Load()
	hosts[1].eventually("the client has retried", func() bool { return tries.Load() > before })
	for _, node := range hosts[1].Status().Nodes {
		hosts[1].eventually("the node calls waiters again", func() bool { return nodeOf(hosts[1], node.Name).Calls })
	}
	at := time.Now()
	must(t, l.Release(t.Context()))
	if took := (<-granted).Sub(at); took > 250*ms {
		t.Errorf("granted %v after the release, want at most 250ms; the client made %d attempts between the broken listeners and the release", took, tries.Load()-before)
	}
}

func killListeners(s *site) {
	for _, server := range s.all {
		for line := range strings.SplitSeq(s.tell(server, "CLIENT", "LIST").Str, "\n") {
			if strings.Contains(line, "name=redlockd-listener ") {
				s.tell(server, "CLIENT", "KILL", "ID", strings.TrimPrefix(strings.Fields(line)[0], "id="))
			}
		}
	}
}

// nodeOf returns what a host knows of a node.
func nodeOf(h *host, name string) redlock.NodeStatus {
	nodes := h.Status().Nodes
	return nodes[slices.IndexFunc(nodes, func(n redlock.NodeStatus) bool { return n.Name == name })]
}
