package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// attempt is one ballot with its own token. It includes a second ballot if the nodes do not
// agree on the fencing token yet. If it is not granted, it is released on every node,
// including nodes that refused, failed or never answered.
type attempt struct {
	q         *Quorum
	r         *Request
	start     time.Duration       // before the first byte is sent
	freshness admission.Freshness // how recent this host's knowledge of the nodes was at start
	entry     *Entry              // if the attempt is refused, its place in the queues; nil: it has none
	b         *ballot.Ballot
	pass      *pass // passes the lock on instead, while that is possible; nil: no pass
	grant
}

// grant is the result of a won attempt.
type grant struct {
	target
	token    string
	fence    uint64 // the proposal, until it is granted
	blockEnd uint64 // the last reserved fencing token; equal to fence if no more are reserved
	wanted   bool   // other clients wait for the lock
	maybeOn  *node.NodeSet
	deadline time.Duration
	missed   time.Duration // the time that this host's clock had missed, as far as deadline takes it into account
}

// newAttempt returns an attempt that is not sent yet. Readers need a full quorum, too: otherwise the quorum
// of a writer might share no node with theirs.
func (q *Quorum) newAttempt(r *Request, t *target, start time.Duration) *attempt {
	r.Holder.Since = q.options.Wall()
	a := &attempt{q: q, r: r, start: start, freshness: q.freshness(start), b: q.newBallot("acquire", script.IsFencedGrant)}
	if t.width() > 1 {
		a.b.Order = t.sorted()
	}
	if r.Slots > 1 {
		t.slot = q.slots.Reserve(t.key, t.slot, r.Slots, q.hooks.Jitter)
	}
	a.grant = grant{target: *t, maybeOn: &node.NodeSet{}, token: t.member(newToken(r.Holder)), fence: q.propose(r.Holder.Since), missed: q.admission.TotalMissed()}
	return a
}

// begin sends the attempt to the nodes and does not wait for them.
func (a *attempt) begin() {
	a.reserveBlock(0)
	o := script.Operation{Token: a.token, TTL: a.r.TTL, Fence: a.fence}
	a.send(node.Call{Ops: a.appendAcquire(a.b.Ask(a.width()), o), Voter: a.b})
}

func (a *attempt) send(c node.Call) {
	if a.r.BeforeAttempt != nil {
		a.r.BeforeAttempt(a.record())
	}
	c.Op, c.Placed = a.b.Op, a.maybeOn
	c.NotAfter = a.start + a.q.options.NodeTimeout // by then it is abandoned, and its release may be complete
	if a.entry != nil {
		a.entry.waiter.Begin()
		c.Ops, c.Waiter = a.entry.ops(c.Ops, script.Enter), a.entry.waiter
	}
	if a.b.RaiseTo > 0 {
		c.Ops = a.appendForKeys(c.Ops, script.Operation{Op: script.RaiseCounter, Token: a.token, Fence: a.b.RaiseTo})
	}
	a.q.call(c, a.start)
}

// reserveBlock makes the nodes raise the counters to the end of the block of fencing tokens in
// the same call, if the request wants a block. floor is known to be above the counters of most
// nodes; 0: nothing is known. If this host's wall clock is ahead of the nodes' clocks, they do
// not use the proposal, and must not count up to it either. Then the first confirmation reserves
// the block.
func (a *attempt) reserveBlock(floor uint64) {
	if a.r.Block <= 1 || a.kind != "" {
		return
	}
	limit := a.q.admission.ReserveLimit(a.start)
	first := floor
	if a.fence <= limit {
		first = max(first, a.fence)
	}
	if end := reserve(first, a.r.Block, limit); first > 0 && end > first {
		a.b.RaiseTo = end
	}
}

// reserve returns the end of a block of fencing tokens that begins at first. The end is at most
// limit, so that the counters do not get ahead of the nodes' clocks.
func reserve(first uint64, block int, limit uint64) uint64 {
	return max(first, min(first+uint64(max(block, 1))-1, limit))
}

// finish waits for the result, and returns the lease or the refusal. The caller must call abandon or
// reenter after a refusal. Validity counts from start: the keys may be as old as that.
func (a *attempt) finish(ctx context.Context) (*Lease, error) {
	if a.pass != nil {
		if l, err := a.finishPass(ctx); l != nil || err != nil {
			return l, err
		}
	}
	q, b := a.q, a.b
	q.await(ctx, b)
	now := q.clock()
	a.deadline = min(a.start+a.r.TTL-drift(a.r.TTL), q.admission.LatestDeadline(a.freshness, b.Granted))
	if a.isWon(ctx, b, now) {
		a.wanted = b.IsWanted()
		b = a.agreeOnFence(ctx)
		now = q.clock()
	}
	missed := q.admission.TotalMissed() // by this host's clock, meanwhile
	a.deadline -= missed - a.missed
	a.missed = missed
	if a.isWon(ctx, b, now) {
		q.counts.grants.Add(1)
		return q.keeper.grant(a.r, &a.grant, a.start, now), nil
	}
	return nil, a.refusal(b)
}

// abandon releases what the attempt may have taken. It does not wait for the nodes.
func (a *attempt) abandon() {
	if a.pass != nil {
		a.pass.abandon()
		return
	}
	a.q.abandon(&a.target, tokens{current: a.token}, a.maybeOn)
}

// reenter releases what the attempt may have taken, and puts the request into the queues before
// that, so that all nodes call the same waiter. It does not wait for the nodes.
func (a *attempt) reenter(e *Entry) {
	if a.pass != nil {
		a.pass.abandon()
		return
	}
	now := a.q.clock()
	c := a.q.releaseCall(&a.target, tokens{current: a.token}, a.maybeOn, nil, now)
	c.Ops, c.Waiter = append(e.ops(nil, script.Reenter), c.Ops...), e.waiter
	a.q.call(c, now)
}

// isWon reports whether the ballot was won in time and the caller still waits.
func (a *attempt) isWon(ctx context.Context, b *ballot.Ballot, now time.Duration) bool {
	a.q.hooks.won()
	return b.Won() && now < a.deadline && ctx.Err() == nil
}

// agreeOnFence ensures that a quorum of nodes has both the lock and a counter of at least
// the fencing token, or of the end of its block. The token is the largest that a granting
// node returned. If the counters of a quorum are not below it, nothing is left to do.
// Otherwise agreeOnFence writes it back, and a node counts only if this attempt still holds
// the lock there. Without that condition two attempts could be granted the same token. It
// returns the ballot that decides.
func (a *attempt) agreeOnFence(ctx context.Context) *ballot.Ballot {
	q := a.q
	fence, nodes := a.b.Fence()
	a.fence = fence
	if q.system.Decides(nodes) {
		a.blockEnd = max(a.b.Reserved(), fence)
		return a.b
	}
	q.counts.writeBacks.Add(1)
	back := q.newBallot("fence", ballot.IsGrant)
	back.Width = a.width()
	a.blockEnd = reserve(fence, a.r.Block, q.admission.ReserveLimit(q.clock()))
	ops := a.appendForKeys(nil, script.Operation{Op: script.RaiseCounter, Token: a.token, Fence: a.blockEnd})
	q.call(node.Call{Op: back.Op, Ops: ops, Voter: &writeBackVoter{granted: a.b, back: back}}, q.clock())
	q.await(ctx, back)
	return back
}

// writeBackVoter counts the answers to a write-back. A node counts only if it had granted the
// attempt before the fencing token was chosen. The token of a node that granted it later may be
// larger than the chosen one, because another client's block lies in between.
type writeBackVoter struct{ granted, back *ballot.Ballot }

// Vote counts a node's answer.
func (v *writeBackVoter) Vote(node int, replies []Reply, failure *NodeError) {
	if failure == nil && !v.granted.HasGranted(node) {
		replies = []Reply{{}} // it does not count
	}
	v.back.Vote(node, replies, failure)
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

// record returns the record of what the attempt may take.
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
// this host. The result is a new grant with its own fencing token, and this lease has ended.
//
// HandOver passes the lock on without asking a node if all of this is true:
//
//   - a confirmation by the nodes that this host holds the lock began at most PassWindow ago;
//   - a fencing token of the block is left (Request.Block);
//   - r.Keep is set;
//   - at least half of r.TTL is left.
//
// The token on the nodes stays the same. Acquire checks the conditions again, right before it
// returns the new lease. If one of them is false by then, Acquire begins the ballot that is
// described below. Wait does not wait for the PendingRelease of a pass, and [PendingRelease.Then]
// says when that is complete.
//
// Otherwise one ballot does both: each node replaces the old token by the new one. So no other
// client can get the lock in between, and waiters on other hosts are not woken. A node that does
// not hold the lock grants it as to any client. A node that cannot grant it still releases the
// old token.
//
// HandOver is for exclusive locks, and r must name the same locks. HandOver returns the
// errors of BeginRelease, and ErrRequest. After ErrRequest the lease is unchanged.
func (l *Lease) HandOver(r Request) (*PendingRelease, *PendingAttempt, error) {
	q := l.keeper.q
	if err := q.check(&r); err != nil {
		return nil, nil, err
	}
	t := q.target(&r)
	if l.kind != "" || l.isDowngraded() || t.kind != "" || !l.isAbout(&t) {
		return nil, nil, fmt.Errorf("redlock: %w: a lease of %s cannot be handed over for %s", ErrRequest, l.name(), r.lock())
	}
	now := q.clock()
	if p := l.passOn(&r, now); p != nil {
		return p.release, &PendingAttempt{attempt: &attempt{q: q, r: &r, pass: p, grant: grant{target: t}}}, nil
	}
	if err := l.finishExclusive(now); err != nil {
		return nil, nil, err
	}
	q.keeper.forget(l)
	release := l.releasing()
	a := q.newAttempt(&r, &t, now)
	a.handOver(l, release, now)
	return release, &PendingAttempt{attempt: a}, nil
}

// finishExclusive marks the lease released. A downgraded lease cannot be handed over.
func (l *Lease) finishExclusive(now time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.downgraded {
		return fmt.Errorf("%s: %w: a shared lease cannot be handed over", l.name(), ErrRequest)
	}
	return l.finishLocked(released, "", now)
}

// handOver sends the hand-over to the nodes: each replaces the token of the lease from by the
// attempt's. That lease is released, or lost.
func (a *attempt) handOver(from *Lease, release *PendingRelease, now time.Duration) {
	a.q.counts.handOvers.Add(1)
	a.reserveBlock(from.lastReserved() + 1)
	old := from.tokens()
	call := a.q.releaseCall(&from.target, old, from.maybeOn, release, now)
	if old.former != "" { // HAND_OVER does not know it: a node that still has it must release it first
		a.q.abandon(&from.target, tokens{current: old.former}, from.maybeOn)
	}
	release.b.Width = 1 // handOverVoter passes it one reply per node
	a.b.Width = a.width()
	o := script.Operation{Op: script.HandOver, OldToken: old.current, Token: a.token, TTL: a.r.TTL, Fence: a.fence}
	a.send(node.Call{Ops: a.appendForKeys(nil, o), Release: &call, Voter: &handOverVoter{acquired: a.b, released: (*releaseVotes)(release)}})
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
		released := Reply{Int: 1}
		for i := range replies {
			if n := len(replies[i].Array); n > 0 {
				released.Int = 0
			}
			if len(replies[i].Array) == 1 { // granted, but the old token was missing
				replies[i] = replies[i].Array[0]
			}
		}
		e.released.Vote(node, []Reply{released}, nil)
	}
	e.acquired.Vote(node, replies, failure)
}

// refusal says why a ballot was not won.
func (a *attempt) refusal(b *ballot.Ballot) error {
	q, name := a.q, a.name()
	switch {
	case b.LacksQuorum():
		return q.noQuorumError(name, b)
	case b.Won():
		e := q.noQuorumError(name, b)
		e.Failed = append(e.Failed, &NodeError{Node: "this host", Op: b.Op, Failure: FailedLate, Err: errors.New("the answers came after the lease would have expired")})
		return e
	case b.Op == "fence":
		e := q.noQuorumError(name, b)
		e.Failed = append(e.Failed, errNotWritten(b.Refused.Len()))
		return e
	}
	e := heldError(name, b)
	if a.target.width() > 1 {
		e.Blocked = a.target.names()[e.blocked]
	}
	if e.split {
		q.counts.splits.Add(1)
	}
	return e
}

// errNotWritten is the error of an attempt whose fencing token was written back to too few nodes. The
// others granted the lock only after the token was chosen, or had lost it.
func errNotWritten(nodes int) *NodeError {
	on := fmt.Sprintf("%d nodes", nodes)
	if nodes == 1 {
		on = "1 node"
	}
	return &NodeError{Node: "this attempt", Op: "fence", Failure: FailedLate,
		Err: fmt.Errorf("%s granted the lock too late, or lost it (expired, deleted or flushed) before its fencing token was written", on)}
}

// errOverloaded returns the error of an attempt that waited for others and was not sent.
func (q *Quorum) errOverloaded(name string) error {
	return &NoQuorumError{Name: name, Needed: q.system.Needed(), Retry: q.options.NodeTimeout, Failed: []*NodeError{{
		Node: "this host", Op: "acquire", Failure: FailedFull,
		Err: errors.New("it was not sent to the nodes: too many attempts of this host are in progress, and the nodes have answered none of them in time"),
	}}}
}

func (q *Quorum) noQuorumError(name string, b *ballot.Ballot) *NoQuorumError {
	b.NoteUnreachable(q.lanes)
	e := &NoQuorumError{
		Name:    name,
		Granted: b.Granted.Len(),
		Needed:  b.Quorum.Needed(),
		Failed:  b.Failures(),
		Retry:   q.options.NodeTimeout,
	}
	var endless bool
	switch e.Quarantine, endless = q.quarantineLeft(b); {
	case e.Quarantine > 0:
		e.Retry = e.Quarantine
		e.Sources = slices.ContainsFunc(q.Status().Nodes, NodeStatus.NeedsOthers)
	case endless:
		e.Retry = max(e.Retry, endlessRetry)
	}
	return e
}

// endlessRetry is the time until another attempt makes sense, if a quarantine does not end by
// itself, but only when other nodes return, or with an ADMIT.
const endlessRetry = time.Second

// quarantineLeft returns the time until a quorum can vote, if only quarantines prevent that; else
// 0. endless reports whether a quarantine does not end by itself.
func (q *Quorum) quarantineLeft(b *ballot.Ballot) (until time.Duration, endless bool) {
	left := make([]time.Duration, len(b.Answers))
	for i := range b.Answers {
		failure := b.Answers[i].Failure
		if failure == nil {
			continue
		}
		left[i] = never
		if failure.Failure != FailedQuarantined {
			continue
		}
		e := (*QuarantineError)(nil)
		switch {
		case errors.As(failure.Err, &e):
			left[i] = max(e.Left, time.Millisecond)
		case redis.IsServerError(failure.Err): // the node has just reported it, so the remaining time is unknown
			left[i] = q.admission.LongestTTL()
		default:
			endless = true
		}
	}
	return q.untilQuorum(left), endless
}

// heldError returns the error of a refused attempt. It names the holder that most nodes showed, and
// the longest ttl of its lease on any of them.
func heldError(name string, b *ballot.Ballot) *HeldError {
	shown, kind := countTokens(b.Answers), b.KindShown()
	e := &HeldError{Name: name, Shared: kind == script.KindShared || kind == script.KindWriter, Waiting: script.IsWaiting(kind), Slots: script.SlotsOf(kind)}
	if len(shown) > 0 && (2*shown[0].Held > b.Refused.Len() || e.Shared || e.Slots > 0) {
		e.Holder, e.TTL, e.foreign, e.token = shown[0].Holder, shown[0].TTL, isForeign(&shown[0]), shown[0].token
	}
	if e.Slots > 0 {
		e.TTL = b.SoonestFreeSlot()
	}
	e.freeSlot, e.blocked = b.FreeSlot(), b.FirstBlocked()
	e.split = e.Slots == 0 && !e.Shared && (len(shown) == 0 || !b.Quorum.Decides(shown[0].nodes|b.SilentNodes()))
	if kind == "" && e.token == "" && b.IsBlockedForever() { // the nodes have different values
		e.Holder, e.TTL, e.split = Holder{}, Endless, false
		e.foreign = !slices.ContainsFunc(shown, func(h Holding) bool { return !isForeign(&h) })
	}
	return e
}

// maxShownValue is the largest part of a foreign value that the nodes show: see SHOWN in ballot.lua.
const maxShownValue = 4096

// isForeign reports whether the holder is another Redlock client, whose release calls no waiter. A
// large value is no token of such a client.
func isForeign(h *Holding) bool { return !h.Holder.Known() && len(h.token) < maxShownValue }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
