package redlock

import (
	"context"
	"slices"
	"strings"
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
	q      *Quorum
	r      *Request
	start  time.Duration       // before the first byte
	aware  admission.Freshness // what was known by then of what the nodes say of each other
	waiter *node.Waiter        // listens; nil: nobody does
	keeps  time.Duration       // refused, it has the lock be kept for the waiter for so long
	b      *ballot.Ballot
	grant
}

// grant is what an attempt that was won is granted.
type grant struct {
	target
	token    string
	fence    uint64 // before it is granted, a proposal
	wanted   bool   // by others
	placed   *node.NodeSet
	deadline time.Duration
	missed   time.Duration // what this host's clock had missed, as far as deadline knows
}

func (q *Quorum) newAttempt(r *Request, t *target, start time.Duration) *attempt {
	r.Holder.Since = q.options.Wall()
	a := &attempt{q: q, r: r, start: start, aware: q.freshness(start), b: q.newBallot("acquire", script.IsFencedGrant)}
	a.b.Quorum = q.rules.needed(q.quorum, r.Shared)
	if r.Slots > 1 {
		t.slot = q.places.reserve(t, r.Slots, q.rules.Jitter)
	}
	a.grant = grant{target: *t, placed: &node.NodeSet{}, token: t.member(q.rules.token(r.Holder)), fence: q.propose(r.Holder.Since), missed: q.admission.TotalMissed()}
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
	c.Op, c.Placed = a.b.Op, a.placed
	c.NotAfter = a.q.rules.notAfter(a.start, a.q.options.NodeTimeout)
	if a.waiter != nil {
		c.Ops = a.each(c.Ops, script.Operation{Op: script.Wait, Token: a.waiter.Mark, TTL: max(a.r.TTL, leastMark)})
		if a.keeps > 0 {
			c.Ops = append(c.Ops, a.keeping()...)
		}
		c.Arming = a.waiter.Arm()
	}
	a.q.call(c, a.start)
}

// keeping has the names be kept in one order, which is the same for all.
func (a *attempt) keeping() []script.Operation {
	ops := a.each(nil, script.Operation{Op: script.Reserve, Token: a.waiter.Mark, TTL: a.keeps})
	slices.SortFunc(ops, func(a, b script.Operation) int { return strings.Compare(a.Key, b.Key) })
	return ops
}

// finish waits for the outcome.
func (a *attempt) finish(ctx context.Context) (*Lease, error) {
	q, b := a.q, a.b
	q.await(ctx, b)
	now := q.clock()
	a.deadline = min(q.rules.start(a.start, now)+a.r.TTL-q.rules.drift(a.r.TTL), q.admission.LatestDeadline(a.aware, b.Voters()))
	if a.wins(ctx, b, now) {
		a.wanted = b.IsWanted()
		b = a.agree(ctx)
		now = q.clock()
	}
	a.age(q.admission.TotalMissed())
	if a.wins(ctx, b, now) {
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

// abandon gives back what it may have taken. It does not wait for the nodes.
func (a *attempt) abandon() { a.q.abandon(&a.target, a.token, a.placed) }

// wins tells whether a ballot was won in time, and somebody wants it still.
func (a *attempt) wins(ctx context.Context, b *ballot.Ballot, now time.Duration) bool {
	return b.Won() && a.q.rules.inTime(now, a.deadline) && ctx.Err() == nil
}

// agree has a quorum of nodes hold the lock together with a counter that is not
// below the fencing token: the largest that a granting node gave. Where a quorum
// gave that very one, they do. Otherwise it is written back, and a node counts
// only if the lock is still ours there: without that two attempts could be
// granted the same token. Returns the ballot that decides.
func (a *attempt) agree(ctx context.Context) *ballot.Ballot {
	q := a.q
	fence, nodes := a.b.Fence()
	a.fence = fence
	if q.rules.agreed(nodes, q.quorum) {
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

// drift is how much sooner a lease ends here than on the nodes, for clocks that do not run
// at quite the same rate.
func drift(ttl time.Duration) time.Duration { return admission.DriftAllowance(ttl) }
