package node

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// listeningLane returns a connected lane that is not running, and its waiters.
func listeningLane() (*Lane, *Waiters) {
	waiters := &Waiters{Host: "me"}
	l := NewLane(Options{
		Prefix: "redlock:", Hooks: &NoHooks, Clock: func() time.Duration { return time.Hour }, Waiters: waiters,
		Admission: admission.NewFleet(admission.Options{Nodes: make([]admission.NodeOptions, 5), Quorum: quorum.Majority(5)}),
	})
	l.state = Ready
	return l, waiters
}

// Only a missing right can be granted: another reason why a node calls no waiters has no such advice.
// Guards Lane.whyNotCalledLocked.
func TestAdviceForListener(t *testing.T) {
	for text, advises := range map[string]bool{
		"NOPERM this user has no permissions to run the 'subscribe' command": true,
		"WRONGPASS invalid username-password pair or user is disabled.":      false,
		"LOADING Redis is loading the dataset in memory":                     false,
	} {
		l, _ := listeningLane()
		l.noteListening(redis.ServerError(text))
		if err := l.whyNotCalledLocked(); !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "ACL SETUSER") != advises {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// A message calls the waiter that it names, and no other. Guards Lane.heard.
func TestMessageCallsWaiter(t *testing.T) {
	l, waiters := listeningLane()
	w := waiters.Join("redlock:x", "", 50*time.Millisecond, "token", quorum.Majority(5))
	other := waiters.Join("redlock:x", script.KindShared, 50*time.Millisecond, "token", quorum.Majority(5))
	l.heard("next 70\x00redlock:x\x00" + w.Entry)
	if called, turn := w.Called(); called != 0 || turn != 70*time.Millisecond {
		t.Errorf("called by the nodes %b, next after %v; want 0 and 70ms", called, turn)
	}
	for range 2 { // the same node again
		l.heard("turn\x00redlock:x\x00" + w.Entry)
		if called, _ := w.Called(); called != 1 {
			t.Errorf("called by the nodes %b, want 1", called)
		}
	}
	select {
	case <-w.News():
	default:
		t.Error("the waiter was not woken")
	}
	if called, turn := other.Called(); called != 0 || turn != 0 {
		t.Errorf("another waiter: called by the nodes %b, next after %v", called, turn)
	}
	w.Begin()
	if called, turn := w.Called(); called != 0 || turn != 0 {
		t.Errorf("after the next attempt has begun: called by the nodes %b, next after %v", called, turn)
	}
}

// An entry of this process that waits no longer gives up its turn at once. Guards Lane.heard.
func TestTurnOfFormerWaiterIsGivenUp(t *testing.T) {
	l, waiters := listeningLane()
	w := waiters.Join("redlock:x", "", 50*time.Millisecond, "token", quorum.Majority(5))
	waiters.Leave(w)
	l.heard("next 70\x00redlock:x\x00" + w.Entry)
	if len(l.queue) != 0 {
		t.Errorf("sent %v for a turn that is not its own", l.queue)
	}
	l.heard("turn\x00redlock:x\x00" + w.Entry)
	if len(l.queue) != 1 || l.queue[0].Ops[0].Op != script.EndWait || l.queue[0].Ops[0].Token != w.Entry || l.queue[0].Ops[0].Key != "redlock:x" {
		t.Errorf("sent %v, want the end of the wait", l.queue)
	}
}

// A message calls several waiters of a host. Guards Lane.heard.
func TestMessageCallsSeveral(t *testing.T) {
	l, waiters := listeningLane()
	var all []*Waiter
	text := "turn\x00redlock:x"
	for range 3 {
		w := waiters.Join("redlock:x", script.KindShared, 50*time.Millisecond, "token"+string(rune('a'+len(all))), quorum.Majority(5))
		all = append(all, w)
		text += "\x00" + w.Entry
	}
	l.heard(text)
	for i, w := range all {
		if called, _ := w.Called(); called.Len() != 1 {
			t.Errorf("waiter %d is called by the nodes %b, want one", i, called)
		}
	}
}

// Messages that no script of a node sends are ignored. Guards parseMessage.
func TestOtherMessagesAreIgnored(t *testing.T) {
	l, waiters := listeningLane()
	w := waiters.Join("redlock:x", "", 50*time.Millisecond, "token", quorum.Majority(5))
	entry := "me - 50 former"
	for _, text := range []string{
		"", "turn", "\x00\x00", "turn\x00redlock:x", "turn\x00\x00" + entry, "turn\x00redlock:x\x00", "Turn\x00redlock:x\x00" + entry,
		"turn\x00another:x\x00" + entry, "turn\x00redlock:x\x00another - 50 former", "turn\x00redlock:x\x00meme",
		"next\x00redlock:x\x00" + w.Entry, "next 0\x00redlock:x\x00" + w.Entry, "next -5\x00redlock:x\x00" + w.Entry,
		"next 99999999999\x00redlock:x\x00" + w.Entry, "next x\x00redlock:x\x00" + w.Entry,
		"next 5\x00redlock:x\x00" + w.Entry + "\x00" + entry, "turn\x00redlock:x\x00" + w.Entry + "\x00", strings.Repeat("x", 1<<20),
	} {
		l.heard(text)
		if called, turn := w.Called(); called != 0 || turn != 0 || len(l.queue) != 0 {
			t.Errorf("%.50q: called by the nodes %b, next after %v, sent %v", text, called, turn, l.queue)
		}
	}
}

// The position is one that a quorum of nodes confirms, and the request hears of a smaller one. Guards
// Waiter.Position, notePosition.
func TestPositionOfQuorum(t *testing.T) {
	_, waiters := listeningLane()
	w := waiters.Join("redlock:x", "", 50*time.Millisecond, "token", quorum.Majority(5))
	before := 0
	for node, c := range []struct{ says, want int }{{4, 0}, {1, 0}, {2, 4}, {3, 3}, {1, 2}} {
		w.noteSent(node)
		w.notePosition(node, c.says)
		if got := w.Position(); got != c.want {
			t.Errorf("node %d says %d: position %d, want %d", node, c.says, got, c.want)
		}
		if news := len(w.News()) > 0; news != (c.want != before) {
			t.Errorf("node %d says %d: signalled %v", node, c.says, news)
		}
		w.Begin()
		before = c.want
	}
	w.notePosition(4, 0)
	w.notePosition(3, 0)
	w.notePosition(2, 0)
	if got := w.Position(); got != 0 {
		t.Errorf("three nodes do not have it: position %d, want none", got)
	}
}

// An entry is the same for one name and for several. Guards Join.
func TestEntryOfWaiter(t *testing.T) {
	_, waiters := listeningLane()
	w := waiters.Join("redlock:y", "", 1500*time.Microsecond, "token", quorum.Majority(5))
	if want := "me - 1 token"; w.Entry != want {
		t.Errorf("got %q, want %q", w.Entry, want)
	}
}

// A host counts as alive for equally long after it entered a queue and after a look at the node.
func TestHostsLiveEquallyLong(t *testing.T) {
	if !strings.Contains(script.Ballot.Source, "local HOST_TTL = "+hostTTL+"\n") {
		t.Errorf("queue.lua has another HOST_TTL than hostTTL, %s ms", hostTTL)
	}
}
