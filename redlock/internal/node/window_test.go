package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// heldNode is a node whose answers the test delays: each Receive waits for a value in answers. It
// records its events: "send t", "load", "do t".
type heldNode struct {
	lostScripts
	answers chan error
	events  []string
}

func (c *heldNode) Send(ctx context.Context, group []redis.Command) error {
	c.events = append(c.events, "send "+tokensOf(group))
	return c.lostScripts.Send(ctx, group)
}

func (c *heldNode) Receive(ctx context.Context, replies []redis.Reply) error {
	if err := <-c.answers; err != nil {
		return err
	}
	return c.lostScripts.Receive(ctx, replies)
}

func (c *heldNode) Do(ctx context.Context, group []redis.Command, replies []redis.Reply) error {
	c.events = append(c.events, "do "+tokensOf(group))
	return c.lostScripts.Do(ctx, group, replies)
}

// tokensOf returns the first token of each command.
func tokensOf(group []redis.Command) string {
	var tokens []string
	for _, command := range group {
		switch {
		case command[0] == "SCRIPT":
			tokens = append(tokens, "load")
		case command[1] == script.Ballot.SHA:
			tokens = append(tokens, firstToken(command))
		}
	}
	return strings.Join(slices.Compact(tokens), " ")
}

// windowTest is a lane to a heldNode over a network with a round trip of 2 ms.
type windowTest struct {
	*testing.T
	lane *Lane
	node *heldNode
	now  time.Duration
	got  outcomes
}

func newWindowTest(t *testing.T) *windowTest {
	w := &windowTest{T: t, now: time.Hour, node: &heldNode{
		lostScripts: lostScripts{answer: func(int) error { return nil }}, answers: make(chan error, 100),
	}}
	fleet := admission.NewFleet(admission.Options{Nodes: make([]admission.NodeOptions, 5), Quorum: quorum.Majority(5)})
	for i := range 5 {
		fleet.NoteClock(i, admission.ClockSample{Known: true}) // so that each fencing token is believed
	}
	w.lane = NewLane(Options{
		Hooks: &NoHooks, NodeTimeout: 50 * time.Millisecond, Clock: func() time.Duration { return w.now }, Waiters: &Waiters{},
		Admission: fleet,
	})
	w.lane.state = Ready
	w.lane.window.conn = w.node
	w.lane.minRoundTrip.note(2 * time.Millisecond)
	return w
}

// call passes a call with this token to the lane, and sends what can be sent.
func (w *windowTest) call(op script.Opcode, token string) *NodeSet {
	placed := &NodeSet{}
	c := Call{Op: "call", Ops: []script.Operation{{Op: op, Key: "x", Token: token, TTL: time.Second}}, Placed: placed, Voter: namedVoter{&w.got, token}}
	if c.IsRelease() {
		c.Op, c.Until = "release", w.now+time.Hour
		placed.Add(0)
		c.Voter = namedVoter{&w.got, "release " + token}
	}
	w.lane.Do(c, w.now)
	w.send()
	return placed
}

func (w *windowTest) send() {
	w.Helper()
	if err := w.lane.sendWaiting(w.node); err != nil {
		w.Fatal(err)
	}
}

// receive makes the node answer the oldest group in progress, and sends what can be sent then.
func (w *windowTest) receive() {
	w.Helper()
	w.now += 2 * time.Millisecond
	w.node.answers <- nil
	if err := w.lane.receiveOldest(); err != nil {
		w.Fatal(err)
	}
	w.send()
}

func (w *windowTest) wantEvents(want ...string) {
	w.Helper()
	if !slices.Equal(w.node.events, want) {
		w.Errorf("events of the node: %q, want %q", w.node.events, want)
	}
}

func (w *windowTest) wantOutcomes(want ...string) {
	w.Helper()
	if !slices.Equal(w.got, want) {
		w.Errorf("results of the calls: %q, want %q", w.got, want)
	}
}

var errFlushed = redis.ServerError("NOSCRIPT No matching script.")

// Calls are sent before earlier calls are answered. Guards sendWaiting.
func TestGroupsAreUnderWayTogether(t *testing.T) {
	w := newWindowTest(t)
	for _, token := range []string{"t", "u", "v"} {
		w.call(script.Acquire, token)
	}
	w.wantEvents("send t", "send u", "send v")
	w.wantOutcomes()
	for range 3 {
		w.receive()
	}
	w.wantOutcomes("t done", "u done", "v done")
}

// The maximum number of groups in progress follows the round trip.
func TestWindowFollowsRoundTrip(t *testing.T) {
	const us = time.Microsecond
	for trip, want := range map[time.Duration]int{0: 1, 80 * us: 1, 299 * us: 1, 300 * us: 4, 1000 * us: 10, 2000 * us: 16, 100 * 1000 * us: 16} {
		var f minRoundTrip
		f.note(50 * time.Millisecond) // the node was slow once
		f.note(trip)
		f.current = trip
		if got := f.limit(); got != want {
			t.Errorf("round trip %v: %d groups under way, want %d", trip, got, want)
		}
		f.age()
		f.note(time.Second) // the node is slow now, but not the network
		if got := f.limit(); got != want && trip != 0 {
			t.Errorf("round trip %v, then a slow second: %d groups under way, want %d", trip, got, want)
		}
		f.age()
		if got := f.limit(); got != MaxUnderWay {
			t.Errorf("after two slow seconds: %d groups under way, want %d", got, MaxUnderWay)
		}
	}
}

// A call that needs the whole connection waits until no group is in progress. No group is sent
// meanwhile. Guards canSend: needsIdleConnection.
func TestLookWaitsForGroupsUnderWay(t *testing.T) {
	w := newWindowTest(t)
	w.call(script.Acquire, "t")
	w.call(script.Acquire, "u")
	w.lane.session.needsScripts = true
	w.call(script.Acquire, "v")
	w.receive()
	w.wantEvents("send t", "send u")
	w.receive()
	w.wantEvents("send t", "send u", "do v", "do load")
}

// If the node lost its scripts, the calls of several groups are resent in their order, after the
// last of these groups was answered and before anything newer. Guards processReply.
func TestResendOfSeveralGroups(t *testing.T) {
	w := newWindowTest(t)
	w.node.answer = func(nth int) error {
		if nth < 3 {
			return errFlushed
		}
		return nil
	}
	w.call(script.Acquire, "t")
	w.call(script.Release, "t")
	w.call(script.Acquire, "u")
	w.receive()
	w.call(script.Acquire, "newer")
	w.receive()
	w.wantOutcomes()
	w.receive()
	w.wantEvents("send t", "send t", "send u", "do load", "do t", "do newer")
	w.wantOutcomes("t done", "release t done", "u done", "newer done")
}

// If the node executed a later group, that group may contain the release of a call that was not
// executed. That call fails and is not resent, or the lock would stay. Guards failNotExecuted.
func TestNoResendBehindLaterGroup(t *testing.T) {
	w := newWindowTest(t)
	w.node.answer = func(nth int) error {
		if nth == 0 || nth == 2 { // another client loaded the scripts, and they were flushed again
			return errFlushed
		}
		return nil
	}
	w.call(script.Acquire, "t")
	w.call(script.Release, "t")
	w.call(script.Acquire, "u")
	for range 3 {
		w.receive()
	}
	w.wantOutcomes("t error", "release t done", "u done")
	w.wantEvents("send t", "send t", "send u", "do load", "do u")
}

// A connection breaks with three groups in progress, the second with a release. All three are in
// doubt: the calls fail, the tokens count as placed, and the release is kept. Guards closeWindow.
func TestBreakWithThreeGroupsUnderWay(t *testing.T) {
	for name, broken := range map[string]error{"down": errors.New("it broke"), "timeout": context.DeadlineExceeded} {
		w := newWindowTest(t)
		placed := []*NodeSet{w.call(script.Acquire, "t"), w.call(script.Release, "u"), w.call(script.Acquire, "v")}
		w.node.answers <- broken
		cause := w.lane.receiveOldest()
		if cause == nil {
			t.Fatal("no error when the connection broke")
		}
		w.lane.closeWindow(cause)
		w.wantOutcomes("t "+name, "release u "+name, "v "+name)
		for i, set := range placed {
			if !set.Has(0) {
				t.Errorf("call %d counts as not sent", i)
			}
		}
		if _, kept := w.lane.pending["x\x00u"]; !kept || len(w.lane.pending) != 1 {
			t.Errorf("releases kept: %v, want that of u", w.lane.pending)
		}
		if w.lane.oldestSentAt != 0 || !w.lane.window.isEmpty() {
			t.Error("groups are in progress without a connection")
		}
	}
}

// Answers that arrived before the connection broke count. Guards closeWindow.
func TestAnswersBeforeABreakCount(t *testing.T) {
	w := newWindowTest(t)
	w.call(script.Acquire, "t")
	w.call(script.Acquire, "u")
	w.node.answers <- nil
	w.node.answers <- errors.New("it broke")
	w.lane.closeWindow(errors.New("another reason"))
	w.wantOutcomes("t done", "u down")
}

// If a node does not answer, at most one window is in progress, and nothing is sent once the
// oldest group is late. Calls wait for at most the node timeout, counted from the oldest group. A
// full queue refuses calls. Guards enqueue, noteSent, canSend and limit.
func TestSlowNodeFillsItsWindow(t *testing.T) {
	w := newWindowTest(t)
	const inTime = 13 // groups, until the first one is late: 2 ms, and a fifth of 50 ms
	for i := range inTime + 10 {
		w.call(script.Acquire, fmt.Sprint(i))
		w.now += time.Millisecond
	}
	if n := len(w.lane.window.underWay); n != inTime || len(w.lane.queue) != 10 {
		t.Errorf("%d groups under way and %d calls waiting, want %d and 10", n, len(w.lane.queue), inTime)
	}
	if w.lane.oldestSentAt != time.Hour {
		t.Error("the silence does not count from the oldest group")
	}
	for i := range maxQueue - 10 {
		w.call(script.Acquire, fmt.Sprint("more ", i))
	}
	w.wantOutcomes()
	w.call(script.Acquire, "full")
	w.wantOutcomes("full full")
	w.receive() // the next group was sent 1 ms later
	w.got, w.lane.queue = nil, nil
	w.now = time.Hour + 51*time.Millisecond
	w.call(script.Acquire, "in time")
	w.now += time.Millisecond
	w.call(script.Acquire, "silent")
	if !slices.Equal(w.got, outcomes{"silent timeout"}) {
		t.Errorf("got %q, want only one timeout, counted from the oldest group", w.got)
	}
}

// However fast calls come, at most one window is in progress. Guards canSend.
func TestWindowIsBounded(t *testing.T) {
	w := newWindowTest(t)
	for i := range 3 * MaxUnderWay {
		w.call(script.Acquire, fmt.Sprint(i))
	}
	if n := len(w.lane.window.underWay); n != MaxUnderWay {
		t.Errorf("%d groups under way, want %d", n, MaxUnderWay)
	}
}

// After a late answer, the lane sends one group at a time until an answer is in time again.
// Guards limit.
func TestLateAnswerClosesTheWindow(t *testing.T) {
	w := newWindowTest(t)
	w.call(script.Acquire, "t")
	w.now += 20 * time.Millisecond
	w.receive()
	w.call(script.Acquire, "u")
	w.wantEvents("send t", "do u")
	w.node.events = nil
	w.lane.rtt, w.lane.minRoundTrip = 3*time.Millisecond, minRoundTrip{current: 2 * time.Millisecond}
	w.call(script.Acquire, "v")
	w.call(script.Acquire, "w")
	w.wantEvents("send v", "send w")
}

// All groups in progress together have at most as many operations as one group may have. An
// urgent call waits for at most these. Guards canSend and nextCalls.
func TestOperationsUnderWayAreBounded(t *testing.T) {
	w := newWindowTest(t)
	for i := range 3 * MaxGroup {
		w.lane.Do(Call{Op: "call", Ops: []script.Operation{{Op: script.Acquire, Key: "x", Token: fmt.Sprint(i), TTL: time.Second}}}, w.now)
		if i%50 == 0 {
			w.send()
		}
	}
	w.send()
	if ops := w.lane.window.ops; ops != MaxGroup {
		t.Errorf("%d operations under way, want %d", ops, MaxGroup)
	}
	w.lane.Do(Call{Op: "extend", Urgent: true, Ops: []script.Operation{{Op: script.Extend, Key: "x", Token: "urgent", TTL: time.Second}}}, w.now)
	for n := len(w.lane.window.underWay); n > 0; n-- {
		w.now += 2 * time.Millisecond
		w.node.answers <- nil
		if err := w.lane.receiveOldest(); err != nil {
			t.Fatal(err)
		}
		before := len(w.node.events)
		w.send()
		if sent := w.node.events[before:]; len(sent) > 0 {
			if !strings.HasPrefix(sent[0], "send urgent") {
				t.Errorf("%.40q was sent before the urgent call", sent)
			}
			return
		}
	}
	t.Error("the urgent call was not sent")
}
