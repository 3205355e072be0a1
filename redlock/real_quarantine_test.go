package redlock_test

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// The node that two quorums share restarts repeatedly and empty, while hosts of both sides work: each
// reaches three of five nodes. A third host reaches all. It copies the counters for the node, and requests
// only half of the locks, because it would win too often.
func TestRealMeetingNodeRestarts(t *testing.T) {
	s := newSite(t, 5)
	left, right, middle := s.newHostAt("abc"), s.newHostAt("cde"), s.newHost()
	history := s.work(left, right)
	history.join(middle, locksAtWork/2)
	for range rounds(5) {
		history.more()
		must(t, s.server("c").Restart())
		for _, h := range []*host{left, right, middle} {
			h.awaits("c", redlock.NodeReady)
		}
	}
	history.wantSafe()
}

// Without the quarantine, a lock is granted twice. This shows what the quarantine is for, and that the
// test above would notice.
func TestRealMeetingNodeRestartsWithoutQuarantine(t *testing.T) {
	s := newSite(t, 5)
	left, right := s.newHostAt("abc", noQuarantine, maxTTL(realTTL)), s.newHostAt("cde", noQuarantine, maxTTL(realTTL))
	h := &history{site: s}
	grant := func(host *host) {
		l := host.take(redlock.Request{Name: "x", TTL: realTTL})
		h.add(&holding{lock: "x", fence: l.Fence(), granted: redlock.BootTime(), until: l.Deadline()})
	}
	grant(left)
	left.tokenOn(s.server("c"), "x")
	right.wantHeld("x")
	left.only("ab") // it does not set its key again
	must(t, s.server("c").Restart())
	grant(right)
	want(t, "pairs of grants that overlap", len(h.doubles()), 1)
}

// If a minority is flushed, locks are still granted, and none twice. When the flushed nodes vote
// again, the key of a held lease is set again there, and the fencing counters are copied from the
// others.
func TestRealFlushOfMinority(t *testing.T) {
	t.Parallel() // most of the time it waits
	for _, flushed := range []string{"a", "ab"} {
		t.Run(flushed, func(t *testing.T) {
			s := newSite(t, 5)
			one, two := s.newHost(maxTTL(steady)), s.newHost(maxTTL(steady))
			least := s.raiseCounters()
			kept := one.take(redlock.Request{Name: "kept", TTL: steady, Keep: true})
			h := s.work(one, two)
			h.more()
			s.flush(flushed)
			for _, node := range flushed {
				one.wentThrough(string(node), redlock.NodeQuarantined)
				two.wentThrough(string(node), redlock.NodeQuarantined)
			}
			h.more()
			for _, node := range flushed {
				s.wantBack(one, string(node), kept, least)
			}
			wantHeldOn(t, kept)
			two.wantHeld("kept")
			h.wantSafe()
		})
	}
}

// flush flushes nodes, one directly after the other.
func (s *site) flush(nodes string) {
	s.Helper()
	for _, node := range nodes {
		must(s, s.server(string(node)).FlushAll())
	}
}

// wantBack waits until a node votes again and has the lease's key. It checks that the node has
// the counters of the others by then.
func (s *site) wantBack(h *host, node string, l *redlock.Lease, least uint64) {
	s.Helper()
	h.awaits(node, redlock.NodeReady)
	server := s.server(node)
	s.wantCounters(server, least)
	h.eventually("the lease is repaired on node "+node, func() bool {
		wantHeldOn(s, l)
		return strings.HasPrefix(s.keyOn(server, l.Name()), l.ID())
	})
}

// wantHeldOn checks that the lease was not lost.
func wantHeldOn(tb testing.TB, l *redlock.Lease) {
	tb.Helper()
	if err := l.Err(); err != nil {
		tb.Fatalf("got %v (%v), want the lease still held", err, l.Cause())
	}
}

// If a quorum is flushed, held leases are lost, which is reported in time. No other client gets
// the lock before their deadlines. The loss of the counters is reported once.
func TestRealFlushOfQuorum(t *testing.T) {
	s := newSite(t, 5)
	one, two := s.newHost(maxTTL(steady)), s.newHost(maxTTL(steady))
	kept := one.take(redlock.Request{Name: "kept", TTL: steady, Keep: true})
	h := s.work(one, two)
	h.more()
	s.flush("abc")
	next := two.take(redlock.Request{Name: "kept", TTL: steady})
	if now := redlock.BootTime(); now < kept.Deadline() {
		t.Errorf("granted again %v before the stated deadline", kept.Deadline()-now)
	}
	wantErr(t, "the earlier lease", kept.Err(), redlock.ErrLost)
	if next.Fence() <= kept.Fence() {
		t.Errorf("fencing token %d after %d", next.Fence(), kept.Fence())
	}
	h.wantSafe()
	wantOnce(t, one, two, redlock.CountersLost, "")
}

// wantOnce checks that at least one host reported the notice, and none twice.
func wantOnce(t *testing.T, one, two *host, kind redlock.NoticeKind, node string) {
	t.Helper()
	first, second := len(one.noticesOf(kind, node)), len(two.noticesOf(kind, node))
	if first > 1 || second > 1 || first+second == 0 {
		t.Errorf("%s of node %q was reported %d times by one host and %d times by the other, want once by each host that noticed", kind, node, first, second)
	}
}
