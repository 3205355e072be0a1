package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
)

// Acquire locks a name, or several at once, on a quorum of nodes. It retries until the lock is
// granted, r.Wait has passed, or ctx is done. The error matches ErrHeld or ErrNoQuorum, depending
// on the last attempt; ErrRequest; ErrClosed; or the cause of ctx's end. Acquire waits for a quorum
// as it waits for a holder: only r.Wait and ctx bound the wait. A failed Acquire leaves nothing on any node: in the background it
// releases what an attempt may have set, repeatedly if necessary.
//
// While another client holds the lock, Acquire listens for its release on the nodes (CLIENT
// TRACKING). It retries after a random delay that separates waiters that were woken
// together. It also retries about four times per ttl, and when the holder's lease may have
// expired. If no quorum of nodes supports tracking, it retries at random intervals.
func (q *Quorum) Acquire(ctx context.Context, r Request) (*Lease, error) {
	a := acquisition{q: q, r: &r, since: q.clock(), starvation: starvationGuard{holdersNeeded: q.rules.reserveAfter}, policy: retryPolicy{deadline: -1}}
	defer a.end()
	if r.Intent != nil {
		a.waiter, a.target = r.Intent.waiter, r.Intent.target
	}
	if r.Pending != nil {
		if !r.Pending.claim() {
			return nil, fmt.Errorf("redlock: %w: the pending attempt for %s was already used", ErrRequest, r.lock())
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

// acquisition is the state of one Acquire.
type acquisition struct {
	q          *Quorum
	r          *Request
	target     target
	pending    *attempt     // begun by HandOver, and not finished by an Acquire yet
	policy     retryPolicy  // without a limit until run has set it
	waiter     *node.Waiter // nil: this Acquire does not listen
	slotTries  int          // attempts for a slot that a node reported as free
	splits     int          // attempts in a row that split the votes
	starvation starvationGuard
	since      time.Duration // when Acquire began
	admitted   bool          // the limiter counts an attempt of it
}

// checkPending rejects a pending attempt or an intent for another lock than the request.
func (a *acquisition) checkPending(t *target) error {
	switch {
	case a.pending != nil && !a.pending.isAbout(t):
		return fmt.Errorf("redlock: %w: the pending attempt is for %s, not for %s", ErrRequest, a.pending.name(), t.name())
	case a.waiter != nil && !a.target.isAbout(t):
		return fmt.Errorf("redlock: %w: the intent is for %s, not for %s", ErrRequest, a.target.name(), t.name())
	}
	return nil
}

func (a *acquisition) run(ctx context.Context) (*Lease, error) {
	if (a.r.Held || a.r.Yield) && a.waiter == nil {
		a.listen()
	}
	if a.r.Yield {
		a.pause(ctx, a.q.yieldDelay(a.r.lock()))
	}
	a.policy = newRetryPolicy(a.q, a.r, a.since)
	if a.pending == nil && !a.enterLimiterFirst(ctx) {
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
		if !a.waitToRetry(ctx, err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: given up: %w", a.r.lock(), context.Cause(ctx))
}

// enterLimiterFirst waits until the limiter admits the first attempt, for at most Wait. Even if
// Wait has passed, it waits for the node timeout, and as long as other attempts reach a quorum. It
// reports whether to make the attempt.
func (a *acquisition) enterLimiterFirst(ctx context.Context) bool {
	a.admitted = a.q.limiter.EnterFirst(ctx, a.r.Holder.UID, a.r.StopRetrying, a.policy.left(a.q.clock()))
	return a.admitted || ctx.Err() != nil
}

// enterLimiter waits until the limiter admits another attempt, or Wait has passed. It reports
// whether to make the attempt.
func (a *acquisition) enterLimiter(ctx context.Context) (again bool) {
	a.admitted = a.q.limiter.Enter(ctx, a.r.Holder.UID, a.r.StopRetrying, a.policy.expired(a.q.clock()))
	return a.admitted || ctx.Err() != nil
}

// leaveLimiter tells the limiter that the attempt that began at start has ended.
func (a *acquisition) leaveLimiter(start time.Duration, err error) {
	switch {
	case !a.admitted:
	case errors.Is(err, ErrNoQuorum):
		a.q.limiter.LeaveWithoutQuorum(start, a.q.clock())
	default:
		a.q.limiter.Leave()
	}
	a.admitted = false
}

// attempt finishes the pending attempt, if there is one, or makes a new one.
func (a *acquisition) attempt(ctx context.Context, start time.Duration) (_ *Lease, err error) {
	defer func() { a.leaveLimiter(start, err) }()
	if begun := a.pending; begun != nil {
		a.pending = nil
		return begun.finish(ctx)
	}
	next := a.q.newAttempt(a.r, &a.target, start)
	next.waiter, next.reservation = a.waiter, a.starvation.reservationLeft(start)
	next.begin()
	return next.finish(ctx)
}

// waitToRetry waits until another attempt makes sense, and reports whether to make one.
func (a *acquisition) waitToRetry(ctx context.Context, err error) (again bool) {
	held, isHeld := errors.AsType[*HeldError](err)
	if isHeld && a.nextSlot(held.freeSlot) {
		return a.enterLimiter(ctx)
	}
	begins := a.countHolder(held)
	delay, again := a.policy.next(err, a.q.clock(), a.waiter.IsSubscribed())
	if again && isHeld && (a.noteRefusal(held) || begins) {
		delay = 0
	}
	return again && a.pause(ctx, delay) && a.enterLimiter(ctx)
}

// nextSlot makes the next attempt request a slot that the nodes report as free. Other
// clients may be faster, so it stops after one try per slot, and the caller pauses.
func (a *acquisition) nextSlot(free int) bool {
	if free == 0 {
		return false
	}
	a.target.slot = int32(free)
	a.slotTries++
	return a.slotTries%(a.r.Slots+1) != 0
}

// noteRefusal records a refusal. It returns true if the next attempt will listen to more keys
// than the last one did. The caller then makes that attempt at once.
func (a *acquisition) noteRefusal(held *HeldError) (listensToMore bool) {
	a.splits++
	if !held.split {
		a.splits = 0
	}
	if a.waiter == nil { // even if no node notifies: other clients must see that this client waits
		a.listen()
		listensToMore = a.q.isTracked()
	}
	return a.waiter != nil && a.q.waiters.WatchLocks(a.waiter, held.foreign) || listensToMore
}

// listen makes all later attempts listen for the release of the lock.
func (a *acquisition) listen() {
	a.r.Holder.Since = a.q.options.Wall()
	a.waiter = a.q.waiters.Join(a.target.keys(), newToken(a.r.Holder), a.q.quorum)
}

// pause waits for delay, or until the lock may be free. It returns false if the caller
// closed Request.StopRetrying.
func (a *acquisition) pause(ctx context.Context, delay time.Duration) (again bool) {
	if delay == 0 { // earlier notifications do not matter
		return !isClosed(a.r.StopRetrying)
	}
	done := ctx.Done()
	if ctx.Err() != nil {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	woken, timeout := a.waiter.Woken(), a.q.options.NodeTimeout
	for {
		select {
		case <-woken:
			if isClosed(a.q.closing) { // Close wakes the waiter as well
				return true
			}
			if a.waiter.FreeNodes() >= a.q.quorum {
				woken = nil
				a.q.counts.wakeups.Add(1)
				if delay = a.policy.limitDelay(a.wakeupDelay(), a.q.clock()); delay == 0 {
					return true // a timer of 0 would fire together with others, in any order
				}
				timer.Reset(delay)
			} else if delay > timeout { // the other nodes may be down and send nothing
				delay = timeout
				timer.Reset(timeout + a.q.rules.Jitter(a.r.lock(), timeout/8)) // waiters that were notified together retry at different times
			}
		case <-timer.C:
			return true
		case <-done:
			return true
		case <-a.r.StopRetrying:
			return false
		case <-a.q.closing:
			return true // the next attempt fails, and its error says why
		}
	}
}

// wakeupDelay returns the delay of a waiter that was woken together with others. A waiter with a
// reservation does not wait.
func (a *acquisition) wakeupDelay() time.Duration {
	if a.starvation.reservationLeft(a.q.clock()) > 0 {
		return 0
	}
	return a.q.spreadDelay(a.r.lock(), a.splits)
}

// end leaves the limiter, and releases a pending attempt and the waiter's keys on the nodes.
func (a *acquisition) end() {
	a.leaveLimiter(0, nil)
	if a.pending != nil {
		a.pending.abandon()
	}
	if a.waiter == nil {
		return
	}
	// A node may still have the waiter's keys, because some nodes answer late.
	(&Intent{q: a.q, target: a.target, waiter: a.waiter, r: *a.r}).End()
}

// countHolder records the holder that refused an attempt, and reports whether a reservation
// begins. A single name is reserved only for a waiter that the nodes notify. A waiter that polls
// would be up to a quarter of a second late, and other polling waiters would be faster.
func (a *acquisition) countHolder(held *HeldError) (begins bool) {
	longest := time.Duration(0)
	if a.waiter.IsSubscribed() || a.target.width() > 1 {
		longest = a.r.TTL
	}
	return a.starvation.countHolder(held, a.q.clock(), a.q.options.NodeTimeout+2*a.q.retryWindow(), longest)
}
