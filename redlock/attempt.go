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

// attempt is one ballot with its own token. It includes a second ballot if the nodes do not
// agree on the fencing token yet. If it is not granted, it is released on every node,
// including nodes that refused, failed or never answered.
type attempt struct {
	q           *Quorum
	r           *Request
	start       time.Duration       // before the first byte
	freshness   admission.Freshness // how recent this host's knowledge of the nodes was at start
	waiter      *node.Waiter        // nil: the attempt does not listen
	reservation time.Duration       // if refused, reserve the lock for the waiter for so long; 0: do not
	b           *ballot.Ballot
	grant
}

// grant is the result of a won attempt.
type grant struct {
	target
	token    string
	fence    uint64 // the proposal, until it is granted
	wanted   bool   // other clients wait for the lock
	maybeOn  *node.NodeSet
	deadline time.Duration
	missed   time.Duration // how much time this host's clock had missed, as far as deadline takes it into account
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

// begin sends the attempt to the nodes and does not wait for them.
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

// reserving returns the reservations of all names, in an order that is the same for all
// clients.
func (a *attempt) reserving() []script.Operation {
	ops := a.each(nil, script.Operation{Op: script.Reserve, Token: a.waiter.ID, TTL: a.reservation})
	slices.SortFunc(ops, func(a, b script.Operation) int { return strings.Compare(a.Key, b.Key) })
	return ops
}

// finish waits for the outcome and returns the lease or the refusal.
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

// age moves the deadline back by the time that this host's clock missed in the meantime.
func (a *attempt) age(missed time.Duration) {
	a.deadline -= missed - a.missed
	a.missed = missed
}

// abandon releases what the attempt may have taken. It does not wait for the nodes.
func (a *attempt) abandon() { a.q.abandon(&a.target, a.token, a.maybeOn) }

// isWon reports whether the ballot was won in time, and the caller still waits.
func (a *attempt) isWon(ctx context.Context, b *ballot.Ballot, now time.Duration) bool {
	return b.Won() && a.q.rules.inTime(now, a.deadline) && ctx.Err() == nil
}

// agreeOnToken ensures that a quorum of nodes has both the lock and a counter of at least
// the fencing token. The token is the largest that a granting node returned. If a quorum
// returned that same token, nothing is left to do. Otherwise agreeOnToken writes it back,
// and a node counts only if this attempt still holds the lock there. Without that condition
// two attempts could be granted the same token. It returns the ballot that decides.
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

// propose returns a fencing token to propose: the wall clock in microseconds, and never the
// same value twice. The clock need not be right: a node whose counter is larger returns a
// larger token.
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

// leastMark is the least time for which the nodes know of a waiter. It lasts until the
// waiter's next attempt, which comes within twice the longest delay (lastRetry).
const leastMark = 500 * time.Millisecond

// record returns what the attempt is about to take.
func (a *attempt) record() Record {
	r := a.target.record()
	r.Token, r.TTL, r.Guard, r.Keep = a.token, a.r.TTL, a.r.Guard, a.r.Keep
	return r
}

// PendingAttempt is an attempt that HandOver has begun. The caller either passes it to
// Acquire as Request.Pending or abandons it, once.
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

// claim returns true to its first caller only.
func (b *PendingAttempt) claim() bool { return !b.used.Swap(true) }

// HandOver releases the lock, as BeginRelease does, and acquires it for another client on
// this host in the same ballot. Each node exchanges the tokens. So no other client comes in
// between, and waiters on other hosts are not woken. A node that does not hold the lock
// takes part again. The result is a new grant with its own fencing token. A node that
// cannot grant it still releases the old token.
//
// HandOver is for exclusive locks, and r must name the same locks. HandOver returns the
// errors of BeginRelease, and ErrRequest. After ErrRequest the lease is unchanged.
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

// handOver sends the exchange to the nodes.
func (a *attempt) handOver(from *Lease, release *PendingRelease, now time.Duration) {
	gives := a.q.releaseCall(&from.target, from.token, from.maybeOn, release, now)
	release.b.Width = 1 // handOverVoter passes it one reply per node
	a.b.Width = a.width()
	o := script.Operation{Op: script.HandOver, OldToken: from.token, Token: a.token, TTL: a.r.TTL, Fence: a.fence}
	a.send(node.Call{Ops: a.each(nil, o), Release: &gives, Voter: &handOverVoter{acquired: a.b, released: (*releaseVotes)(release)}})
}

// handOverVoter counts the answers for both ballots of a hand-over.
type handOverVoter struct {
	acquired *ballot.Ballot
	released node.Voter
}

// Vote counts a node's answer. A node that granted the new token, or showed another holder,
// no longer holds the old token. (The lane reports a failure to the release itself.)
func (e *handOverVoter) Vote(node int, replies []Reply, failure *NodeError) {
	if failure == nil {
		given := Reply{Int: 1}
		for i := range replies {
			if n := len(replies[i].Array); n > 0 {
				given.Int = 0
			}
			if len(replies[i].Array) == 1 { // granted, but the old token was missing
				replies[i] = replies[i].Array[0]
			}
		}
		e.released.Vote(node, []Reply{given}, nil)
	}
	e.acquired.Vote(node, replies, failure)
}
