package ballot

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// ending is the state of a ballot after some of the answers.
type ending string

const (
	open      ending = "open"
	won       ending = "won"
	isHeld    ending = "held"
	hasNoVote ending = "no quorum"
)

// endingOf returns the result of a ballot when all nodes have answered.
func endingOf(votes []Verdict, s quorum.System) ending {
	switch {
	case s.Decides(nodesThat(votes, Granted)):
		return won
	case !s.Decides(nodesThat(votes, Granted) | nodesThat(votes, Refused)):
		return hasNoVote
	}
	return isHeld
}

func nodesThat(votes []Verdict, v Verdict) (nodes quorum.Set) {
	for i, vote := range votes {
		if vote == v {
			nodes |= quorum.Of(i)
		}
	}
	return nodes
}

// certain tries each way in which the other nodes could still answer. votes has the verdict of each
// node, by index. It returns the ending to which all of them lead, or open.
func certain(votes []Verdict, s quorum.System) ending {
	next := slices.Index(votes, unanswered)
	if next < 0 {
		return endingOf(votes, s)
	}
	var first ending
	for _, v := range []Verdict{Granted, Refused, Failed} {
		after := slices.Clone(votes)
		after[next] = v
		switch e := certain(after, s); {
		case first == "":
			first = e
		case e != first:
			return open
		}
	}
	return first
}

func castVote(b *Ballot, voter int, v Verdict) {
	switch v {
	case Failed:
		b.Vote(voter, nil, &node.Error{Node: "n", Op: b.Op, Failure: node.FailedDown, Err: errors.New("not connected yet")})
	case Granted:
		b.Vote(voter, []redis.Reply{{Int: 1}}, nil)
	default:
		b.Vote(voter, []redis.Reply{{Array: []redis.Reply{{Str: "x"}, {Int: 1000}}}}, nil)
	}
}

func stateOf(b *Ballot) ending {
	select {
	case <-b.decided:
	default:
		return open
	}
	switch {
	case b.Won():
		return won
	case b.LacksQuorum():
		return hasNoVote
	}
	return isHeld
}

// For each order of answers, a ballot is decided by exactly the answer after which no further
// answers could change the result: of 1 to 7 nodes, and of two lists of nodes. Guards isDecidedLocked, Won
// and LacksQuorum.
func TestBallotDecides(t *testing.T) {
	for nodes := 1; nodes <= 7; nodes++ {
		inOrder := make([]int, nodes) // nodes are alike
		for i := range inOrder {
			inOrder[i] = i
		}
		everyMixture(nodes, nil, func(votes []Verdict) { checkBallot(t, quorum.Majority(nodes), inOrder, votes) })
	}
	for _, lists := range [][]quorum.Set{
		{quorum.Of(0), quorum.Of(1)},
		{quorum.Of(0), quorum.Of(0, 1, 2)},
		{quorum.Of(0, 1, 2), quorum.Of(0, 1, 3)},
		{quorum.Of(0, 1, 2), quorum.Of(3)},
	} {
		nodes := (lists[0] | lists[1]).Len()
		everyOrder(nodes, nil, func(order []int) {
			everyMixture(nodes, nil, func(votes []Verdict) { checkBallot(t, quorum.Joint(lists...), order, votes) })
		})
	}
}

func everyMixture(nodes int, votes []Verdict, check func([]Verdict)) {
	if len(votes) == nodes {
		check(votes)
		return
	}
	for _, v := range []Verdict{Granted, Refused, Failed} {
		everyMixture(nodes, append(slices.Clip(votes), v), check)
	}
}

func everyOrder(nodes int, order []int, check func([]int)) {
	if len(order) == nodes {
		check(order)
		return
	}
	for node := range nodes {
		if !slices.Contains(order, node) {
			everyOrder(nodes, append(slices.Clip(order), node), check)
		}
	}
}

// checkBallot makes the nodes answer in the given order, each with its vote.
func checkBallot(t *testing.T, s quorum.System, order []int, votes []Verdict) {
	t.Helper()
	b := New("acquire", len(votes), s, IsGrant)
	known := make([]Verdict, len(votes))
	for i, node := range order {
		castVote(b, node, votes[node])
		known[node] = votes[node]
		want := certain(known, s)
		if got := stateOf(b); got != want {
			t.Fatalf("%+v: after %v in the order %v: got %s, want %s", s, known, order, got, want)
		}
		if want != open {
			checkLateVotes(t, b, votes, order[i+1:])
			return
		}
	}
	t.Fatalf("%+v: %v: all nodes answered, but the ballot is not decided", s, votes)
}

// checkLateVotes checks that neither answers after the deciding one nor the timeout change
// anything.
func checkLateVotes(t *testing.T, b *Ballot, votes []Verdict, late []int) {
	t.Helper()
	before := [3]quorum.Set{b.Granted, b.Refused, b.Failed}
	b.timeOut(time.Second, namedLanes(make([]string, len(votes))...))
	for _, node := range late {
		castVote(b, node, votes[node])
	}
	if after := [3]quorum.Set{b.Granted, b.Refused, b.Failed}; after != before || len(b.Failures()) != b.Failed.Len() {
		t.Fatalf("%v: decided with %v, but %v after the answers of %v", votes, before, after, late)
	}
}

// A question to all nodes is decided only by the last answer.
func TestBallotWantsAll(t *testing.T) {
	b := New("who", 5, quorum.Majority(5), IsGrant)
	b.WaitsForAll = true
	for i := range 5 {
		if got := stateOf(b); got != open {
			t.Errorf("after %d of 5 answers: got %s, want %s", i, got, open)
		}
		castVote(b, i, Granted)
	}
	if got := stateOf(b); got != won {
		t.Errorf("after all: got %s, want %s", got, won)
	}
}

func namedLanes(names ...string) []*node.Lane {
	lanes := make([]*node.Lane, len(names))
	all := admission.NewFleet(admission.Options{Nodes: make([]admission.NodeOptions, len(names))})
	for i, name := range names {
		lanes[i] = node.NewLane(node.Options{Node: redis.Node{Name: name}, Index: i, Admission: all})
	}
	return lanes
}

// Nodes that are silent until the timeout have failed. Their later answers are ignored. Guards
// wait and timeOut.
func TestBallotTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("acquire", 5, quorum.Majority(5), IsGrant)
		castVote(b, 1, Granted)
		castVote(b, 3, Granted)
		start := time.Now()
		b.Wait(t.Context(), time.After(50*time.Millisecond), 50*time.Millisecond, namedLanes("a", "b", "c", "d", "e"))
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("waited %v, want the timeout of 50ms", took)
		}
		castVote(b, 0, Granted)
		if b.Won() || !b.LacksQuorum() {
			t.Errorf("won %v, lacks a quorum %v; want no quorum, whatever nodes answer late", b.Won(), b.LacksQuorum())
		}
		checkSilent(t, b, "a", "c", "e")
	})
}

func checkSilent(t *testing.T, b *Ballot, want ...string) {
	t.Helper()
	var got []string
	for _, failure := range b.Failures() {
		got = append(got, failure.Node)
		if failure.Failure != node.FailedTimeout || failure.Op != b.Op {
			t.Errorf("failure of a silent node: %v, want a timeout of %s", failure, b.Op)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("silent nodes: got %v, want %v", got, want)
	}
}

// The wait ends at once when the caller's context ends. There is no wait for a decided ballot.
func TestBallotWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller is gone"))
		start := time.Now()
		b := New("acquire", 3, quorum.Majority(3), IsGrant)
		b.Wait(ctx, nil, time.Hour, namedLanes("a", "b", "c"))
		if !b.LacksQuorum() {
			t.Error("the wait ended without an answer, want no quorum")
		}
		b = New("acquire", 1, quorum.Majority(1), IsGrant)
		castVote(b, 0, Granted)
		b.Wait(t.Context(), nil, time.Hour, namedLanes("a"))
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v, want no wait", took)
		}
	})
}
