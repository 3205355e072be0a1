package redlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
)

// ending is what is to be said of a ballot.
type ending string

const (
	open      ending = "open"
	won       ending = "won"
	isHeld    ending = "held"
	hasNoVote ending = "no quorum"
)

// endingOf is what a ballot came to when all nodes have answered.
func endingOf(votes []verdict, quorum int) ending {
	switch grants, failures := countOf(votes, granted), countOf(votes, failed); {
	case grants >= quorum:
		return won
	case len(votes)-failures < quorum:
		return hasNoVote
	}
	return isHeld
}

func countOf(votes []verdict, v verdict) int {
	n := 0
	for _, vote := range votes {
		if vote == v {
			n++
		}
	}
	return n
}

// certain tries every way in which the rest could still answer: the ending that
// all of them lead to, or open.
func certain(votes []verdict, nodes, quorum int) ending {
	if len(votes) == nodes {
		return endingOf(votes, quorum)
	}
	votes = slices.Clip(votes)
	first := certain(append(votes, granted), nodes, quorum)
	for _, v := range []verdict{refused, failed} {
		if certain(append(votes, v), nodes, quorum) != first {
			return open
		}
	}
	return first
}

func castVote(b *ballot, node int, v verdict) {
	switch v {
	case failed:
		b.Vote(node, nil, &NodeError{Node: "n", Op: b.op, Failure: FailedDown, Err: errors.New("not connected yet")})
	case granted:
		b.Vote(node, []Reply{{Int: 1}}, nil)
	default:
		b.Vote(node, []Reply{{Array: []Reply{{Str: "x"}, {Int: 1000}}}}, nil)
	}
}

func stateOf(b *ballot) ending {
	select {
	case <-b.decided:
	default:
		return open
	}
	switch {
	case b.won():
		return won
	case b.lacksQuorum():
		return hasNoVote
	}
	return isHeld
}

// Every order of answers, for 1 to 7 nodes: a ballot is decided by exactly the
// answer after which no others could change what is to be said of it.
// Guards ballot.isDecided, won and lacksQuorum.
func TestBallotDecides(t *testing.T) {
	for nodes := 1; nodes <= 7; nodes++ {
		everyOrder(nodes, nil, func(votes []verdict) { checkBallot(t, votes) })
	}
}

func everyOrder(nodes int, votes []verdict, check func([]verdict)) {
	if len(votes) == nodes {
		check(votes)
		return
	}
	for _, v := range []verdict{granted, refused, failed} {
		everyOrder(nodes, append(slices.Clip(votes), v), check)
	}
}

func checkBallot(t *testing.T, votes []verdict) {
	t.Helper()
	nodes := len(votes)
	b := newBallot("acquire", nodes, quorumOf(nodes), isGrant)
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
	t.Fatalf("%v: all answered and nothing decided", votes)
}

// checkLateVotes: what comes after the deciding answer changes nothing, nor does the end
// of the time for it.
func checkLateVotes(t *testing.T, b *ballot, votes []verdict, from int) {
	t.Helper()
	before := [3]int{b.granted, b.refused, b.failed}
	b.giveUp(time.Second, namedLanes(make([]string, len(votes))...))
	for i := from; i < len(votes); i++ {
		castVote(b, i, votes[i])
	}
	if after := [3]int{b.granted, b.refused, b.failed}; after != before || len(b.failures()) != b.failed {
		t.Fatalf("%v: decided by %d answers with %v, and %v after the rest", votes, from, before, after)
	}
}

// Guards quorumOf: any two quorums share a node, and no smaller number does so.
func TestQuorumOf(t *testing.T) {
	for n := 1; n <= MaxNodes; n++ {
		if q := quorumOf(n); 2*q <= n || 2*(q-1) > n || q > n {
			t.Errorf("quorumOf(%d) = %d: two quorums must overlap, and two smaller ones need not", n, q)
		}
	}
}

func TestDrift(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 3 * time.Millisecond,
		time.Second:            12 * time.Millisecond,
		30 * time.Second:       302 * time.Millisecond,
	} {
		if got := drift(ttl); got != want {
			t.Errorf("drift(%v): got %v, want %v", ttl, got, want)
		}
	}
}

// A question to all nodes is decided by the last answer only.
func TestBallotWantsAll(t *testing.T) {
	b := newBallot("who", 5, 3, isGrant)
	b.all = true
	for i := range 5 {
		if got := stateOf(b); got != open {
			t.Errorf("after %d of 5 answers: got %s, want %s", i, got, open)
		}
		castVote(b, i, granted)
	}
	if got := stateOf(b); got != won {
		t.Errorf("after all: got %s, want %s", got, won)
	}
}

func namedLanes(names ...string) []*node.Lane {
	lanes := make([]*node.Lane, len(names))
	all := admission.NewFleet(admission.Options{Nodes: make([]admission.NodeOptions, len(names))})
	for i, name := range names {
		lanes[i] = node.NewLane(node.LaneOptions{Node: Node{Name: name}, Index: i, Admission: all})
	}
	return lanes
}

// The nodes that are silent until the timeout have failed; what they answer
// later is ignored. Guards ballot.wait and giveUp.
func TestBallotGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBallot("acquire", 5, 3, isGrant)
		castVote(b, 1, granted)
		castVote(b, 3, granted)
		start := time.Now()
		b.wait(t.Context(), time.After(50*time.Millisecond), 50*time.Millisecond, namedLanes("a", "b", "c", "d", "e"))
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("waited %v, want the timeout of 50ms", took)
		}
		castVote(b, 0, granted)
		if b.won() || !b.lacksQuorum() {
			t.Errorf("won %v, lacks a quorum %v: want a lack of a quorum, whatever comes late", b.won(), b.lacksQuorum())
		}
		checkSilent(t, b, "a", "c", "e")
	})
}

func checkSilent(t *testing.T, b *ballot, want ...string) {
	t.Helper()
	var got []string
	for _, failure := range b.failures() {
		got = append(got, failure.Node)
		if failure.Failure != FailedTimeout || failure.Op != b.op {
			t.Errorf("failure of a silent node: %v, want a timeout of %s", failure, b.op)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("silent nodes: got %v, want %v", got, want)
	}
}

// The end of the caller's context ends the wait at once, and a decided ballot
// is not waited for at all.
func TestBallotWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("caller is gone"))
		start := time.Now()
		b := newBallot("acquire", 3, 2, isGrant)
		b.wait(ctx, nil, time.Hour, namedLanes("a", "b", "c"))
		if !b.lacksQuorum() {
			t.Error("given up without an answer: want the lack of a quorum")
		}
		b = newBallot("acquire", 1, 1, isGrant)
		castVote(b, 0, granted)
		b.wait(t.Context(), nil, time.Hour, namedLanes("a"))
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v, want no wait", took)
		}
	})
}
