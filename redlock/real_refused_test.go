package redlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// If two names are configured for one server, the name under which it was admitted votes, and the
// other one does not.
func TestRealOneServerTwice(t *testing.T) {
	s := newSite(t, 3)
	h := s.openHost(everywhere, func(o *redlock.Options) {
		o.Nodes[2] = redlock.RedisNode(redlock.NodeOptions{Name: "c", Address: s.server("b").Addr()})
	})
	wantRefused(h, "c", `is node "b" already`, "correct the address")
	h.awaits("a", redlock.NodeReady)
	h.awaits("b", redlock.NodeReady)
	h.pair("x")
	s.server("a").Kill()
	_, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
	wantNoQuorum(t, err, "", "a", "c")
}

// If no host has admitted the server yet, the first of the two names that connects votes.
func TestRealOneServerTwiceFromTheStart(t *testing.T) {
	t.Parallel()
	s := &site{TB: t, all: redlocktest.StartRedis(t, 2).Servers}
	h := s.openHost(everywhere, func(o *redlock.Options) {
		o.Nodes = append(o.Nodes, redlock.RedisNode(redlock.NodeOptions{Name: "c", Address: s.server("b").Addr()}))
	})
	h.eventually("two nodes are ready and one is refused", func() bool {
		states := []redlock.NodeState{h.of("b").State, h.of("c").State}
		slices.Sort(states)
		return h.of("a").State == redlock.NodeReady && slices.Equal(states, []redlock.NodeState{redlock.NodeReady, redlock.NodeRefused})
	})
}

// A host with another node list gets no vote from nodes that were admitted with our list. We
// still get their votes.
func TestRealAnotherNodeList(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	other := s.openHost(everywhere, func(o *redlock.Options) { o.Nodes = o.Nodes[:2] })
	wantRefused(other, "a", "another node list", "3-", "2-", "HDEL redlockd:node epoch")
	wantRefused(other, "b", "another node list")
	_, err := other.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
	wantNoQuorum(t, err, redlock.FailedRefused, "a", "b")
	wantWarning(t, other.Status().Warning, "odd number")
	h.pair("x")
	h.wantNoQuarantine("another host's list")
	want(t, "warnings of three nodes", len(h.Status().Warning), 0)
}

func wantWarning(t *testing.T, warnings []string, words string) {
	t.Helper()
	if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, words) }) {
		t.Errorf("warnings %q: want one that says %q", warnings, words)
	}
}

// A node that would evict locks is refused until its policy is changed.
func TestRealEviction(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	a := s.server("a")
	s.tell(a, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	wantRefused(h, "a", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction")
	h.pair("x")
	s.tell(a, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	h.awaits("a", redlock.NodeReady)
	wantWarning(t, h.of("a").Warning, "no persistence")
}

// A node in cluster mode is refused, with or without slots. Without slots it also refuses to show
// its epoch; the reason must still be the mode.
func TestRealClusterMode(t *testing.T) {
	t.Parallel()
	for name, slots := range map[string][]string{"none": nil, "all": {"0", "16383"}, "others": {"0", "1"}} {
		t.Run(name, func(t *testing.T) {
			s := &site{TB: t, all: redlocktest.StartRedis(t, 1, redlocktest.TCP(), redlocktest.Args("--cluster-enabled", "yes")).Servers}
			if slots != nil {
				s.tell(s.all[0], append([]string{"CLUSTER", "ADDSLOTSRANGE"}, slots...)...)
			}
			h := s.openHost(everywhere)
			wantRefused(h, "a", "cluster mode", "cluster-enabled no")
			_, err := h.Acquire(t.Context(), redlock.Request{Name: "x", TTL: quarantine})
			wantNoQuorum(t, err, redlock.FailedRefused, "a")
		})
	}
}

// A replica that shows nothing without its master is still refused as a replica.
func TestRealReplicaThatShowsNothing(t *testing.T) {
	t.Parallel()
	s := &site{TB: t, all: redlocktest.StartRedis(t, 1).Servers}
	s.tell(s.all[0], "CONFIG", "SET", "replica-serve-stale-data", "no")
	s.tell(s.all[0], "REPLICAOF", "127.0.0.1", "1")
	wantRefused(s.openHost(everywhere), "a", "it is a replica", "REPLICAOF NO ONE")
}

// If a node does not know a command, the reason is the same each time, because a changed reason
// is logged. The reason does not repeat the arguments of the command.
func TestRealReasonOfRenamedCommand(t *testing.T) {
	t.Parallel()
	s := &site{TB: t, all: redlocktest.StartRedis(t, 1, redlocktest.Args("--rename-command", "EVALSHA", "")).Servers}
	h := s.openHost(everywhere)
	wantRefused(h, "a", "it does not know EVALSHA", "rename-command")
	if reason := h.of("a").Reason.Error(); strings.Contains(reason, "pending:") {
		t.Errorf("refused because: %s; want no epoch in it, which differs each time", reason)
	}
}

// If another program overwrites the node's hash, the error says what to do, and doing that fixes
// it.
func TestRealHashOverwritten(t *testing.T) {
	s := newSite(t, 3)
	h := s.newHost()
	a := s.server("a")
	s.tell(a, "DEL", "redlockd:node")
	s.tell(a, "SET", "redlockd:node", "x")
	wantRefused(h, "a", "WRONGTYPE", "somebody else wrote to redlockd:node: DEL it there")
	s.tell(a, "DEL", "redlockd:node")
	h.awaits("a", redlock.NodeReady)
}
