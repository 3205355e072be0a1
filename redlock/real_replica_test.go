package redlock_test

import (
	"net"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// replicable returns options for servers that can become replicas of each other without delay.
func replicable() []redlocktest.Option {
	return []redlocktest.Option{redlocktest.TCP(), redlocktest.Args("--repl-diskless-sync-delay", "0")}
}

// A node becomes a replica of another node, and a master again. Then it has the other node's
// data. The other node is refused meanwhile, and votes again later.
func TestRealReplicaOfAnotherAndBack(t *testing.T) {
	s := newSite(t, 5, replicable()...)
	one, two := s.newHost(), s.newHost()
	h := s.work(one, two)
	h.more()
	s.replicate("a", s.server("b").Addr())
	wantRefused(one, "a", "it is a replica", "REPLICAOF NO ONE")
	wantRefused(two, "b", "1 replicas are attached", "detach")
	two.eventually("a has the data of b", func() bool { return s.epochOf(s.server("a")) == s.epochOf(s.server("b")) })
	h.more()
	two.forget()
	s.tell(s.server("a"), "REPLICAOF", "NO", "ONE")
	two.wentThrough("a", redlock.NodeQuarantined)
	one.awaits("a", redlock.NodeReady)
	one.awaits("b", redlock.NodeReady)
	two.awaits("b", redlock.NodeReady)
	h.wantSafe()
}

// The same with a master that cannot be reached: the data stays, but the hosts cannot know that.
// The node becomes a master again after the hosts noticed, or within a heartbeat.
func TestRealReplicaOfUnreachableMasterAndBack(t *testing.T) {
	t.Parallel() // most of the time it waits
	for _, noticed := range []bool{true, false} {
		t.Run(name("noticed %v", noticed), func(t *testing.T) {
			s := newSite(t, 5, replicable()...)
			one, two := s.newHost(), s.newHost()
			h := s.work(one, two)
			h.more()
			s.replicate("a", "127.0.0.1:1") // tcpmux: nothing listens there
			if noticed {
				wantRefused(one, "a", "it is a replica")
				wantRefused(two, "a", "it is a replica")
			}
			s.tell(s.server("a"), "REPLICAOF", "NO", "ONE")
			one.wentThrough("a", redlock.NodeQuarantined)
			two.wentThrough("a", redlock.NodeQuarantined)
			one.awaits("a", redlock.NodeReady)
			h.wantSafe()
			wantOnce(t, one, two, redlock.Withdrawn, "a")
		})
	}
}

func (s *site) replicate(node, address string) {
	s.Helper()
	host, port, err := net.SplitHostPort(address)
	must(s, err)
	s.tell(s.server(node), "REPLICAOF", host, port)
}

// wantRefused waits until a node is refused, and checks that the reason has these words.
func wantRefused(h *host, node string, words ...string) {
	h.site.Helper()
	status := h.awaits(node, redlock.NodeRefused)
	for _, word := range words {
		if !strings.Contains(status.Reason.Error(), word) {
			h.site.Errorf("node %s is refused because: %v; want %q in the reason", node, status.Reason, word)
		}
	}
}
