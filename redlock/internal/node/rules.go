package node

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Rules are the decisions of a lane that safety rests on, one function each, so that a
// test can show what happens without it. Only tests replace one.
type Rules struct {
	// votes tells whether a node may vote: not in a quarantine.
	Votes func(State) bool

	// copyCounters returns the fencing counters for a node that lost its own: the largest
	// of each, and how many other nodes they are from.
	CopyCounters func(ctx context.Context, nodes Peers, member *admission.Member) (counters *admission.Counters, sources int)

	// meanwhile is what is done for a node while its quarantine lasts: nothing. Counters
	// that are copied then may be smaller than those that are counted until it ends.
	Meanwhile func(ctx context.Context, nodes Peers, member *admission.Member)

	// order orders the calls of a group: a release must not overtake the acquire that it
	// cleans up after.
	Order func(waiting []Call) []Call

	// predecessor returns the id of the connection that a new connection ends first, given
	// the id of the last one: bytes may still be under way on it.
	Predecessor func(id int64) int64

	// Repeats tells whether an unanswered release is repeated, given whether its token may be
	// on the node.
	Repeats func(maybePlaced bool) bool

	// InDoubt tells how many of the groups under way may have been executed when the
	// connection broke, the oldest first: all.
	InDoubt func(underWay int) int

	// Safety does not rest on the rules below: the first wakes waiters, the others make a
	// simulation repeatable.

	// wasReleased tells from the wake-up keys whether a lock was released before the node
	// could be asked to tell.
	WasReleased func(wakeups []redis.Reply) bool

	// jitter returns a random time in [0, n), n > 0, for a node or a lock.
	Jitter func(who string, n time.Duration) time.Duration

	// GroupsUnderWay returns how many groups may be under way, given what the round trips
	// say.
	GroupsUnderWay func(measured int) int

	// gather lets goroutines that are about to hand over a call join the group.
	Gather func()
}

// SoundRules are the rules that a lane has outside of tests.
var SoundRules = Rules{
	Votes: func(state State) bool { return state == Ready },
	CopyCounters: func(ctx context.Context, nodes Peers, _ *admission.Member) (*admission.Counters, int) {
		return nodes.CopyCounters(ctx)
	},
	Meanwhile:      func(context.Context, Peers, *admission.Member) {},
	Order:          func(waiting []Call) []Call { return waiting },
	Predecessor:    func(id int64) int64 { return id },
	Repeats:        func(maybePlaced bool) bool { return maybePlaced },
	InDoubt:        func(underWay int) int { return underWay },
	WasReleased:    wasReleased,
	Jitter:         func(_ string, n time.Duration) time.Duration { return rand.N(n) },
	GroupsUnderWay: func(measured int) int { return measured },
	Gather:         runtime.Gosched,
}
