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
func endingOf(votes []Verdict, quorum int) ending {
	switch grants, failures := countOf(votes, Granted), countOf(votes, Failed); {
	case grants >= quorum:
		return won
	case len(votes)-failures < quorum:
		return hasNoVote
	}
	return isHeld
}

func countOf(votes []Verdict, v Verdict) int {
	n := 0
	for _, vote := range votes {
		if vote == v {
			n++
		}
	}
	return n
}

// certain tries each way in which the other nodes could still answer. It returns the ending to
// which all of them lead, or open.
func certain(votes []Verdict, nodes, quorum int) ending {
	if len(votes) == nodes {
		return endingOf(votes, quorum)
	}
	votes = slices.Clip(votes)
	first := certain(append(votes, Granted), nodes, quorum)
	for _, v := range []Verdict{Refused, Failed} {
		if certain(append(votes, v), nodes, quorum) != first {
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

// For 1 to 7 nodes and each order of answers, a ballot is decided by exactly the answer after
// which no further answers could change the result. Guards isDecided, Won and LacksQuorum.
func TestBallotDecides(t *testing.T) {
	for nodes := 1; nodes <= 7; nodes++ {
		everyOrder(nodes, nil, func(votes []Verdict) { checkBallot(t, votes) })
	}
}

func everyOrder(nodes int, votes []Verdict, check func([]Verdict)) {
	if len(votes) == nodes {
		check(votes)
		return
	}
	for _, v := range []Verdict{Granted, Refused, Failed} {
		everyOrder(nodes, append(slices.Clip(votes), v), check)
	}
}

func checkBallot(t *testing.T, votes []Verdict) {
	t.Helper()
	nodes := len(votes)
	b := New("acquire", nodes, QuorumOf(nodes), IsGrant)
	for i := range nodes {
		castVote(b, i, votes[i])
		want := certain(votes[:i+1], nodes, nodes/2+1)
		if got := stateOf(b); got != want {
			t.Fatalf("after %v of %d nodes: got %s, want %s", votes[:i+1], nodes, got, want)
		}
		if want != open {
			checkLateVotes(t, b, votes, i+1)
			return
		}
	}
	t.Fatalf("%v: all nodes answered, but the ballot is not decided", votes)
}

// checkLateVotes checks that neither answers after the deciding one nor the timeout change
// anything.
func checkLateVotes(t *testing.T, b *Ballot, votes []Verdict, from int) {
	t.Helper()
	before := [3]int{b.Granted, b.Refused, b.Failed}
	b.timeOut(time.Second, namedLanes(make([]string, len(votes))...))
	for i := from; i < len(votes); i++ {
		castVote(b, i, votes[i])
	}
	if after := [3]int{b.Granted, b.Refused, b.Failed}; after != before || len(b.Failures()) != b.Failed {
		t.Fatalf("%v: decided by %d answers with %v, but %v after the rest", votes, from, before, after)
	}
}

// Any two quorums share a node, and no smaller number has this property. Guards QuorumOf.
func TestQuorumOf(t *testing.T) {
	for n := 1; n <= 63; n++ {
		if q := QuorumOf(n); 2*q <= n || 2*(q-1) > n || q > n {
			t.Errorf("quorumOf(%d) = %d, want the smallest number of which any two sets overlap", n, q)
		}
	}
}

// A question to all nodes is decided only by the last answer.
func TestBallotWantsAll(t *testing.T) {
	b := New("who", 5, 3, IsGrant)
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
		b := New("acquire", 5, 3, IsGrant)
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
		b := New("acquire", 3, 2, IsGrant)
		b.Wait(ctx, nil, time.Hour, namedLanes("a", "b", "c"))
		if !b.LacksQuorum() {
			t.Error("the wait ended without an answer, want no quorum")
		}
		b = New("acquire", 1, 1, IsGrant)
		castVote(b, 0, Granted)
		b.Wait(t.Context(), nil, time.Hour, namedLanes("a"))
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v, want no wait", took)
		}
	})
}
