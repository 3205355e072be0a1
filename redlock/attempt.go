package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// attempt is one ballot with a token of its own, and a second one where the
// nodes do not agree on the fencing token yet. Not granted: released on every
// node, also on those that refused, failed or never answered.
type attempt struct {
	q           *Quorum
	r           *Request
	start       time.Duration       // before the first byte
	freshness   admission.Freshness // what was known by then of what the nodes say of each other
	waiter      *node.Waiter        // listens; nil: nobody does
	reservation time.Duration       // refused, it has the lock be kept for the waiter for so long
	b           *ballot.Ballot
	grant
}

// grant is what an attempt that was won is granted.
type grant struct {
	target
	token    string
	fence    uint64 // before it is granted, a proposal
	wanted   bool   // by others
	maybeOn  *node.NodeSet
	deadline time.Duration
	missed   time.Duration // what this host's clock had missed, as far as deadline knows
}

func (q *Quorum) newAttempt(r *Request, t *target, start time.Duration) *attempt {
	r.Holder.Since = q.options.Wall()
	a := &attempt{q: q, r: r, start: start, freshness: q.freshness(start), b: q.newBallot("acquire", script.IsFencedGrant)}
	a.b.Quorum = q.rules.needed(q.quorum, r.Shared)
	if r.Slots > 1 {
		t.slot = q.slots.reserve(t, r.Slots, q.rules.Jitter)
	}
	a.grant = grant{target: *t, maybeOn: &node.NodeSet{}, token: t.member(q.rules.token(r.Holder)), fence: q.propose(r.Holder.Since), missed: q.admission.TotalMissed()}
	return a
}

// begin puts it to the nodes, and waits for none.
func (a *attempt) begin() {
	o := script.Operation{Token: a.token, TTL: a.r.TTL, Fence: a.fence}
	a.send(node.Call{Ops: a.taking(a.b.Ask(a.width()), o), Voter: a.b})
}

func (a *attempt) send(c node.Call) {
	if a.r.Noting != nil {
		a.r.Noting(a.record())
	}
	c.Op, c.Placed = a.b.Op, a.maybeOn
	c.NotAfter = a.q.rules.notAfter(a.start, a.q.options.NodeTimeout)
	if a.waiter != nil {
		c.Ops = a.each(c.Ops, script.Operation{Op: script.Wait, Token: a.waiter.ID, TTL: max(a.r.TTL, leastMark)})
		if a.reservation > 0 {
			c.Ops = append(c.Ops, a.reserving()...)
		}
		c.Subscription = a.waiter.Subscribe()
	}
	a.q.call(c, a.start)
}

// reserving returns the reservations of all names in one order, which is the same for all.
func (a *attempt) reserving() []script.Operation {
	ops := a.each(nil, script.Operation{Op: script.Reserve, Token: a.waiter.ID, TTL: a.reservation})
	slices.SortFunc(ops, func(a, b script.Operation) int { return strings.Compare(a.Key, b.Key) })
	return ops
}

// finish waits for the outcome.
func (a *attempt) finish(ctx context.Context) (*Lease, error) {
	q, b := a.q, a.b
	q.await(ctx, b)
	now := q.clock()
	a.deadline = min(q.rules.start(a.start, now)+a.r.TTL-q.rules.drift(a.r.TTL), q.admission.LatestDeadline(a.freshness, b.Voters()))
	if a.isWon(ctx, b, now) {
		a.wanted = b.IsWanted()
		b = a.agreeOnToken(ctx)
		now = q.clock()
	}
	a.age(q.admission.TotalMissed())
	if a.isWon(ctx, b, now) {
		q.counts.grants.Add(1)
		return q.keeper.grant(a.r, &a.grant, a.start, now), nil
	}
	a.abandon()
	return nil, a.refusal(b)
}

// age takes off what this host's clock missed meanwhile.
func (a *attempt) age(missed time.Duration) {
	a.deadline -= missed - a.missed
	a.missed = missed
}

// abandon releases what it may have taken. It does not wait for the nodes.
func (a *attempt) abandon() { a.q.abandon(&a.target, a.token, a.maybeOn) }

// isWon reports whether a ballot was won in time, and somebody wants it still.
func (a *attempt) isWon(ctx context.Context, b *ballot.Ballot, now time.Duration) bool {
	return b.Won() && a.q.rules.inTime(now, a.deadline) && ctx.Err() == nil
}

// agreeOnToken makes a quorum of nodes hold the lock together with a counter that is not
// below the fencing token: the largest that a granting node gave. Where a quorum
// gave that very one, they do. Otherwise it is written back, and a node counts
// only if the lock is still ours there: without that two attempts could be
// granted the same token. Returns the ballot that decides.
func (a *attempt) agreeOnToken(ctx context.Context) *ballot.Ballot {
	q := a.q
	fence, nodes := a.b.Fence()
	a.fence = fence
	if q.rules.needsNoWriteBack(nodes, q.quorum) {
		return a.b
	}
	q.counts.writeBacks.Add(1)
	back := q.newBallot("fence", ballot.IsGrant)
	ops := a.each(back.Ask(a.width()), script.Operation{Op: script.RaiseCounter, Token: a.token, Fence: fence})
	q.call(node.Call{Op: back.Op, Ops: ops, Voter: back}, q.clock())
	q.await(ctx, back)
	return back
}

// propose returns a fencing token to propose: the wall clock in microseconds,
// and never the same twice. It need not be right: a node whose counter is larger
// gives a larger one.
func (q *Quorum) propose(now time.Time) uint64 {
	wish := uint64(max(now.UnixMicro(), 1))
	for {
		last := q.proposed.Load()
		next := min(max(wish, last+1), script.MaxFence)
		if q.proposed.CompareAndSwap(last, next) {
			return next
		}
	}
}

// leastMark is how long the nodes know of a waiter, at least: until its next attempt, which
// comes within twice the longest delay (lastRetry).
const leastMark = 500 * time.Millisecond

// record is what the attempt is about to take.
func (a *attempt) record() Record {
	r := a.target.record()
	r.Token, r.TTL, r.Guard, r.Keep = a.token, a.r.TTL, a.r.Guard, a.r.Keep
	return r
}

// PendingAttempt is an attempt that HandOver has begun. The caller passes it to Acquire, as
// Request.Pending, or abandons it; once.
type PendingAttempt struct {
	attempt *attempt
	used    atomic.Bool
}

// Abandon releases what the attempt may take, unless it was passed to Acquire. It does not
// wait for the nodes.
func (b *PendingAttempt) Abandon() {
	if b.claim() {
		b.attempt.abandon()
	}
}

// claim is true once.
func (b *PendingAttempt) claim() bool { return !b.used.Swap(true) }

// HandOver releases the lock, as BeginRelease does, and acquires it for another client on
// this host in one ballot: each node exchanges the one token for the other. So no other
// client comes in between, waiters on other hosts are not woken, and a node that does not
// hold the lock takes part again. It is a new grant, with its own fencing token. A node
// that cannot grant it releases the old token all the same.
//
// It is for exclusive locks, and r is about the same names. Errors are those of
// BeginRelease, and ErrRequest: the lease is as before then.
func (l *Lease) HandOver(r Request) (*PendingRelease, *PendingAttempt, error) {
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
	return release, &PendingAttempt{attempt: a}, nil
}

// handOver puts the exchange to the nodes.
func (a *attempt) handOver(from *Lease, release *PendingRelease, now time.Duration) {
	gives := a.q.releaseCall(&from.target, from.token, from.maybeOn, release, now)
	release.b.Width = 1 // it is told of them together
	a.b.Width = a.width()
	o := script.Operation{Op: script.HandOver, OldToken: from.token, Token: a.token, TTL: a.r.TTL, Fence: a.fence}
	a.send(node.Call{Ops: a.each(nil, o), Release: &gives, Voter: &handOverVoter{acquired: a.b, released: (*releaseVotes)(release)}})
}

// handOverVoter is the two ballots of a hand-over.
type handOverVoter struct {
	acquired *ballot.Ballot
	released node.Voter
}

// Vote counts a node's answer: a node that granted the new token, or showed another holder,
// no longer holds the old one. (What failed is told to the release itself.)
func (e *handOverVoter) Vote(node int, replies []Reply, failure *NodeError) {
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
		e.released.Vote(node, []Reply{given}, nil)
	}
	e.acquired.Vote(node, replies, failure)
}
