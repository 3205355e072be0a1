package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
)

// Acquire locks a name, or several at once, on a quorum of nodes, retrying until
// granted, until r.Wait is over, or ctx is done. The error matches ErrHeld or
// ErrNoQuorum, whichever the last attempt met; ErrRequest; ErrClosed; or the cause of
// ctx's end. Where no quorum could vote for a whole ttl, it gives up with ErrNoQuorum.
// Nothing is left on any node when it fails: what an attempt may have set is
// released in the background, repeatedly if need be.
//
// While somebody else holds the lock it listens for its release on the nodes
// (CLIENT TRACKING) and tries again then, after a random time that spreads those
// who were woken together; and otherwise some four times a ttl, and when the lease of
// the holder could be over. Where no quorum of nodes has tracking, it tries again
// at random intervals.
func (q *Quorum) Acquire(ctx context.Context, r Request) (*Lease, error) {
	a := acquiring{q: q, r: &r, since: q.clock(), guard: starvationGuard{need: q.rules.reserveAfter}}
	defer a.end()
	if r.Intent != nil {
		a.waiter, a.target = r.Intent.waiter, r.Intent.target
	}
	if r.Pending != nil {
		if !r.Pending.claim() {
			return nil, fmt.Errorf("redlock: %w: what was begun for %s was used before", ErrRequest, r.lock())
		}
		a.pending = r.Pending.attempt
	}
	if err := q.check(&r); err != nil {
		return nil, err
	}
	t := q.target(&r)
	if err := a.checkPending(&t); err != nil {
		return nil, err
	}
	a.target = t
	return a.run(ctx)
}

// acquiring is one Acquire.
type acquiring struct {
	q         *Quorum
	r         *Request
	target    target
	pending   *attempt // that nobody has waited for yet
	policy    *retryPolicy
	waiter    *node.Waiter // nil: it does not listen
	slotTries int          // how many it asked for because they were said to be free
	splits    int          // attempts in a row that nobody won
	guard     starvationGuard
	since     time.Duration // when it began
	admitted  bool          // it has a place of the limiter
}

// checkPending requires that what was begun for the request, and its intent, to be about what it
// asks for.
func (a *acquiring) checkPending(t *target) error {
	switch {
	case a.pending != nil && !a.pending.isAbout(t):
		return fmt.Errorf("redlock: %w: what was begun is for %s, and not for %s", ErrRequest, a.pending.name(), t.name())
	case a.waiter != nil && !a.target.isAbout(t):
		return fmt.Errorf("redlock: %w: the intent is for %s, and not for %s", ErrRequest, a.target.name(), t.name())
	}
	return nil
}

func (a *acquiring) run(ctx context.Context) (*Lease, error) {
	if (a.r.Held || a.r.Yield) && a.waiter == nil {
		a.listen()
	}
	if a.r.Yield {
		a.pause(ctx, a.q.yielding(a.r.lock()))
	}
	a.policy = a.q.newRetryPolicy(a.r, a.since, a.q.clock())
	if a.pending == nil && !a.enterFirst(ctx) {
		return nil, a.q.errOverloaded(a.r.lock())
	}
	for ctx.Err() == nil {
		start := a.q.clock() // before the first byte
		lease, err := a.attempt(ctx, start)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			break
		}
		if isClosed(a.q.closing) {
			return nil, fmt.Errorf("%s: given up: %w; the last attempt: %w", a.r.lock(), ErrClosed, err)
		}
		if a.r.Failed != nil {
			a.r.Failed(err)
		}
		if !a.rest(ctx, err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: given up: %w", a.r.lock(), context.Cause(ctx))
}

// enterFirst waits for a place for the first attempt, for Wait at most; but for
// node_timeout, and while other attempts meet a quorum, even if Wait is over. It reports
// whether the attempt is to be made.
func (a *acquiring) enterFirst(ctx context.Context) bool {
	arrived := a.q.clock()
	a.admitted = a.q.limiter.enterFirst(ctx, a.r.Holder.UID, a.r.Enough, a.policy.left(arrived))
	a.policy.notAsked(a.q.clock() - arrived)
	return a.admitted || ctx.Err() != nil
}

// enter waits for a place for another attempt, until its time is over. It reports whether
// the attempt is to be made.
func (a *acquiring) enter(ctx context.Context) (again bool) {
	arrived := a.q.clock()
	a.admitted = a.q.limiter.enter(ctx, a.r.Holder.UID, a.r.Enough, a.policy.over(arrived))
	a.policy.notAsked(a.q.clock() - arrived)
	return a.admitted || ctx.Err() != nil
}

// leave returns the place of an attempt that began at start.
func (a *acquiring) leave(start time.Duration, err error) {
	switch {
	case !a.admitted:
	case errors.Is(err, ErrNoQuorum):
		a.q.limiter.leaveWithoutQuorum(start, a.q.clock())
	default:
		a.q.limiter.leave()
	}
	a.admitted = false
}

// attempt is the one that was begun already, or a new one.
func (a *acquiring) attempt(ctx context.Context, start time.Duration) (_ *Lease, err error) {
	defer func() { a.leave(start, err) }()
	if begun := a.pending; begun != nil {
		a.pending = nil
		return begun.finish(ctx)
	}
	t := a.q.newAttempt(a.r, &a.target, start)
	t.waiter, t.reservation = a.waiter, a.guard.left(start)
	t.begin()
	return t.finish(ctx)
}

// rest waits until another attempt makes sense, and tells whether there is to be
// one.
func (a *acquiring) rest(ctx context.Context, err error) (again bool) {
	held, isHeld := errors.AsType[*HeldError](err)
	if isHeld && a.nextSlot(held.free) {
		return a.enter(ctx)
	}
	begins := a.countHolder(held)
	delay, again := a.policy.next(err, a.q.clock(), a.waiter.IsSubscribed())
	if again && isHeld && (a.noteRefusal(held) || begins) {
		delay = 0
	}
	return again && a.pause(ctx, delay) && a.enter(ctx)
}

// nextSlot has the next attempt request a slot that the nodes say is free. Others
// may be quicker, but not again and again without a pause.
func (a *acquiring) nextSlot(free int) bool {
	if free == 0 {
		return false
	}
	a.target.slot = int32(free)
	a.slotTries++
	return a.slotTries%(a.r.Slots+1) != 0
}

// noteRefusal records what a refusal says. It is true where the next attempt will listen
// to more than the last one did: it is made at once.
func (a *acquiring) noteRefusal(held *HeldError) (more bool) {
	a.splits++
	if !held.split {
		a.splits = 0
	}
	if a.waiter == nil { // also where nothing is told: others are to know that it waits
		a.listen()
		more = a.q.isTracked()
	}
	return a.waiter != nil && a.q.waiters.WatchLocks(a.waiter, held.foreign) || more
}

// listen has the attempts from now on listen for the release of the lock.
func (a *acquiring) listen() {
	a.r.Holder.Since = a.q.options.Wall()
	a.waiter = a.q.waiters.Join(a.target.keys(), newToken(a.r.Holder), a.q.quorum)
}

// pause waits for delay, or until the lock may be free. It is false where the
// caller has had enough.
func (a *acquiring) pause(ctx context.Context, delay time.Duration) (again bool) {
	if delay == 0 { // what has rung already is of no interest
		return !isClosed(a.r.Enough)
	}
	done := ctx.Done()
	if ctx.Err() != nil {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	rung, settle := a.waiter.Woken(), a.q.options.NodeTimeout
	for {
		select {
		case <-rung:
			if isClosed(a.q.closing) { // which rings, too
				return true
			}
			if a.waiter.FreeNodes() >= a.q.quorum {
				rung = nil
				a.q.counts.wakeups.Add(1)
				if delay = a.policy.within(a.spread(), a.q.clock()); delay == 0 {
					return true // and not with others at the same instant, in any order
				}
				timer.Reset(delay)
			} else if delay > settle { // the other nodes may be down, and say nothing
				delay = settle
				timer.Reset(settle + a.q.rules.Jitter(a.r.lock(), settle/8)) // not all who heard it at once
			}
		case <-timer.C:
			return true
		case <-done:
			return true
		case <-a.r.Enough:
			return false
		case <-a.q.closing:
			return true // the nodes are asked no more, which is the error
		}
	}
}

// spread is how long it waits where others are woken with it. Those for whom the lock is
// kept have no need to.
func (a *acquiring) spread() time.Duration {
	if a.guard.left(a.q.clock()) > 0 {
		return 0
	}
	return a.q.spread(a.r.lock(), a.splits)
}

// end leaves nothing behind.
func (a *acquiring) end() {
	a.leave(0, nil)
	if a.pending != nil {
		a.pending.abandon()
	}
	if a.waiter == nil {
		return
	}
	// Whether any node has its mark is not known: some answer late.
	(&Intent{q: a.q, target: a.target, waiter: a.waiter, r: *a.r}).End()
}

// countHolder records the holder that refused an attempt, and reports whether a
// reservation begins. A single name is reserved only for a waiter that the nodes notify: one
// that polls would come up to a quarter of a second late, and others that poll are sooner.
func (a *acquiring) countHolder(held *HeldError) (begins bool) {
	most := time.Duration(0)
	if a.waiter.IsSubscribed() || a.target.width() > 1 {
		most = a.r.TTL
	}
	return a.guard.note(held, a.q.clock(), a.q.options.NodeTimeout+2*a.q.window(), most)
}
