package node

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// Rules are the decisions of a lane on which safety depends, one function each, so that a test
// can show what happens without one. Only tests replace them.
type Rules struct {
	// Votes reports whether a node may vote.
	Votes func(State) bool

	// CopyCounters returns the fencing counters for a node that lost its own: the largest value
	// of each, and the other nodes that they come from.
	CopyCounters func(ctx context.Context, nodes Peers, member *admission.Member) *admission.Sources

	// Meanwhile is called for a node during its quarantine, and does nothing. Counters that were
	// copied then could be smaller than at the end of the quarantine.
	Meanwhile func(ctx context.Context, nodes Peers, member *admission.Member)

	// Order orders the calls of a group. A release must not overtake the acquire that it cleans
	// up after.
	Order func(waiting []Call) []Call

	// Predecessor returns the id of the connection that a new connection ends first, given the id
	// of the last one: bytes may still be in transit on it.
	Predecessor func(id int64) int64

	// Repeats reports whether an unanswered release is repeated, given whether its token may be
	// on the node.
	Repeats func(maybePlaced bool) bool

	// InDoubt returns how many of the groups in progress, the oldest first, may have been
	// executed when the connection broke: all.
	InDoubt func(underWay int) int

	// Safety does not depend on the rules below, which make a simulation repeatable.

	// Jitter returns a random time in [0, n), n > 0, for a node or a lock.
	Jitter func(who string, n time.Duration) time.Duration

	// GroupsUnderWay returns how many groups may be in progress, given the number that the round
	// trips suggest.
	GroupsUnderWay func(measured int) int

	// Gather lets goroutines that are about to pass a call to the lane join the group.
	Gather func()
}

// SoundRules are the rules that a lane has outside of tests.
var SoundRules = Rules{
	Votes: func(state State) bool { return state == Ready },
	CopyCounters: func(ctx context.Context, nodes Peers, m *admission.Member) *admission.Sources {
		return nodes.CopyCounters(ctx, m.Index())
	},
	Meanwhile:      func(context.Context, Peers, *admission.Member) {},
	Order:          func(waiting []Call) []Call { return waiting },
	Predecessor:    func(id int64) int64 { return id },
	Repeats:        func(maybePlaced bool) bool { return maybePlaced },
	InDoubt:        func(underWay int) int { return underWay },
	Jitter:         func(_ string, n time.Duration) time.Duration { return rand.N(n) },
	GroupsUnderWay: func(measured int) int { return measured },
	Gather:         runtime.Gosched,
}
