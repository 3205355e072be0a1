package redlock

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Begun is an attempt that HandOver has begun. It is to be given to Acquire, as
// Request.Begun, or to be abandoned; once.
type Begun struct {
	attempt *attempt
	used    atomic.Bool
}

// Abandon gives back what the attempt may take, unless it was given to Acquire. It
// does not wait for the nodes.
func (b *Begun) Abandon() {
	if b.claim() {
		b.attempt.abandon()
	}
}

// claim is true once.
func (b *Begun) claim() bool { return !b.used.Swap(true) }

// HandOver begins to give the lock back, as BeginRelease does, and to take it again
// for somebody else on this host, at once: one ballot, in which each node exchanges
// the one token for the other, so that nobody comes in between, who waits on other
// hosts is not woken, and a node that does not hold the lock takes part again. It
// is a new grant, with a fencing token of its own. Where a node cannot grant it, it
// is told to give back the old token all the same.
//
// It is for exclusive locks, and r is about the same names. Errors are those of
// BeginRelease, and ErrRequest: the lease is as before then.
func (l *Lease) HandOver(r Request) (*Releasing, *Begun, error) {
	q := l.keeper.q
	if err := q.check(&r); err != nil {
		return nil, nil, err
	}
	t := q.target(&r)
	if l.kind != "" || t.kind != "" || !l.isAbout(&t) {
		return nil, nil, fmt.Errorf("redlock: %w: %s is not what a lease of %s can be handed over for", ErrRequest, r.lock(), l.name())
	}
	now := q.clock()
	if err := l.finish(released, "", now); err != nil {
		return nil, nil, err
	}
	q.keeper.forget(l)
	q.counts.handOvers.Add(1)
	release := l.releasing()
	a := q.newAttempt(&r, &t, now)
	a.handOver(l, release, now)
	return release, &Begun{attempt: a}, nil
}

// handOver puts the exchange to the nodes.
func (a *attempt) handOver(from *Lease, release *Releasing, now time.Duration) {
	gives := a.q.releaseCall(&from.target, from.token, from.placed, release, now)
	release.b.Width = 1 // it is told of them together
	a.b.Width = a.width()
	o := script.Operation{Op: script.HandOver, OldToken: from.token, Token: a.token, TTL: a.r.TTL, Fence: a.fence}
	a.send(node.Call{Ops: a.each(nil, o), Gives: &gives, Voter: &exchange{taken: a.b, given: (*releaseVotes)(release)}})
}

// exchange is the two ballots of a hand-over.
type exchange struct {
	taken *ballot.Ballot
	given node.Voter
}

// vote: who has taken the lock, or is refused by another that has it, holds the old
// token no more. (What failed is told to the release itself.)
func (e *exchange) Vote(node int, replies []Reply, failure *NodeError) {
	if failure == nil {
		given := Reply{Int: 1}
		for i := range replies {
			if n := len(replies[i].Array); n > 0 {
				given.Int = 0
			}
			if len(replies[i].Array) == 1 { // granted, where the old token was missing
				replies[i] = replies[i].Array[0]
			}
		}
		e.given.Vote(node, []Reply{given}, nil)
	}
	e.taken.Vote(node, replies, failure)
}
