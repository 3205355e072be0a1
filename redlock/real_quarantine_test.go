package redlock_test

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock"
)

// sides has two hosts that each reach three of five nodes, and a third that reaches
// all. Every quorum of the first and every quorum of the second share only c. (Without
// the third host, nobody could copy the counters for c.)
type sides struct {
	*site
	left, right, middle *host
	history             *history
}

// workOnSides puts all three hosts to work; the third would win too often if it
// took part in everything.
func workOnSides(t *testing.T, change ...func(*redlock.Options)) *sides {
	t.Helper()
	s := newSite(t, 5)
	w := &sides{site: s, left: s.newHostAt("abc", change...), right: s.newHostAt("cde", change...), middle: s.newHost(change...)}
	w.history = s.work(w.left, w.right)
	w.history.join(w.middle, locksAtWork/2)
	return w
}

// restartMeeting kills the node in which the quorums meet, and starts it again,
// empty; it returns when all hosts have votes of it again.
func (w *sides) restartMeeting() {
	w.Helper()
	w.history.more()
	must(w, w.server("c").Restart())
	for _, h := range []*host{w.left, w.right, w.middle} {
		h.awaits("c", redlock.NodeReady)
	}
}

// The node in which two quorums meet restarts repeatedly, under load from both sides.
func TestRealMeetingNodeRestarts(t *testing.T) {
	w := workOnSides(t)
	for range rounds(5) {
		w.restartMeeting()
	}
	w.history.wantSafe()
}

// The same with the quarantine off: a lock is granted twice before long. This
// is what the quarantine is for, and that the test above sees it.
func TestRealMeetingNodeRestartsWithoutQuarantine(t *testing.T) {
	w := workOnSides(t, noQuarantine)
	for round := 0; round < 50 && len(w.history.doubles()) == 0; round++ {
		w.restartMeeting()
	}
	w.history.stop()
	if len(w.history.doubles()) == 0 {
		t.Errorf("no lock was granted twice in %d grants: the check cannot see it", w.history.grants())
	}
}

// A minority is flushed: locks are granted on, none twice; a lease that is held
// gets its key back once the nodes vote again, and the fencing counters come
// from the others.
func TestRealFlushOfMinority(t *testing.T) {
	t.Parallel() // it mostly waits
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

// wantBack waits until a node votes again, and a lease has its key there; it has
// the counters of the others then.
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

// wantHeldOn: a lease was not lost through it all.
func wantHeldOn(tb testing.TB, l *redlock.Lease) {
	tb.Helper()
	if err := l.Err(); err != nil {
		tb.Fatalf("got %v (%v), want it held on", err, l.Cause())
	}
}

// A quorum is flushed at once: what was held is lost, and told in time; nobody
// else gets it before. The loss of the counters is announced once.
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
	wantErr(t, "the lease of before", kept.Err(), redlock.ErrLost)
	if next.Fence() <= kept.Fence() {
		t.Errorf("fencing token %d after %d", next.Fence(), kept.Fence())
	}
	h.wantSafe()
	wantOnce(t, one, two, redlock.CountersLost, "")
}

// wantOnce checks that at least one host reported it, and no host twice.
func wantOnce(t *testing.T, one, two *host, kind redlock.NoticeKind, node string) {
	t.Helper()
	first, second := len(one.told(kind, node)), len(two.told(kind, node))
	if first > 1 || second > 1 || first+second == 0 {
		t.Errorf("%s of node %q was told %d times by one host and %d times by the other, want once by each that noticed", kind, node, first, second)
	}
}

// All nodes of a quorum lose everything, one after the other: with the counters
// copied each time, fencing tokens go on where they were, though in the end no
// node of the quorum has any memory of its own.
func TestRealFlushOneAfterTheOther(t *testing.T) {
	s := newSite(t, 5)
	h := s.newHost()
	s.raiseCounters()
	before := h.take(redlock.Request{Name: "x", TTL: quarantine})
	h.giveBack(before)
	for _, node := range []string{"a", "b", "c"} {
		h.forget()
		s.flush(node)
		h.wentThrough(node, redlock.NodeQuarantined)
		h.awaits(node, redlock.NodeReady)
	}
	s.server("d").Kill()
	s.server("e").Kill()
	after := h.take(redlock.Request{Name: "x", TTL: quarantine})
	if after.Fence() <= before.Fence() {
		t.Errorf("fencing token %d after %d", after.Fence(), before.Fence())
	}
	want(t, "losses of a quorum's counters that were told", len(h.told(redlock.CountersLost, "")), 0)
}
