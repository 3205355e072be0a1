package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Acquire locks a name, or several at once, on a quorum of nodes. It retries until the lock is
// granted, r.Wait has passed, or ctx is done. The error matches ErrHeld or ErrNoQuorum, depending
// on the last attempt; ErrRequest; ErrClosed; or the cause of ctx's end. Acquire waits for a quorum
// as it waits for a holder: only r.Wait and ctx bound the wait. A failed Acquire leaves nothing on any node: in the background it
// releases what an attempt may have set, repeatedly if necessary.
//
// If another client holds the lock, the request stands in the nodes' wait queues until it is granted
// or Acquire ends. The nodes call it when it is its turn, and Acquire asks again when a quorum of
// nodes has called it. If calls are lost, it also asks when the holder's lease or the turn of another
// waiter may have ended. If no quorum of nodes can call waiters, it asks at random intervals.
func (q *Quorum) Acquire(ctx context.Context, r Request) (*Lease, error) {
	a := acquisition{q: q, r: &r, entry: r.Entry, since: q.clock(), policy: retryPolicy{deadline: -1}}
	defer a.end()
	if r.Pending != nil {
		if !r.Pending.claim() {
			return nil, fmt.Errorf("redlock: %w: the pending attempt for %s was already used", ErrRequest, r.lock())
		}
		a.pending = r.Pending.attempt
	}
	if err := q.check(&r); err != nil {
		return nil, err
	}
	a.target = q.target(&r)
	switch {
	case a.pending != nil && !a.pending.isAbout(&a.target):
		return nil, fmt.Errorf("redlock: %w: the pending attempt is for %s, not for %s", ErrRequest, a.pending.name(), a.target.name())
	case a.entry != nil && !a.entry.target.isAbout(&a.target):
		return nil, fmt.Errorf("redlock: %w: the entry is for %s, not for %s", ErrRequest, a.entry.target.name(), a.target.name())
	}
	return a.run(ctx)
}

// acquisition is the state of one Acquire.
type acquisition struct {
	q         *Quorum
	r         *Request
	target    target
	pending   *attempt      // begun by HandOver, and not finished by an Acquire yet
	policy    retryPolicy   // without a limit until run has set it
	entry     *Entry        // its place in the nodes' queues; nil: it has none
	entered   bool          // the last attempt had the entry
	waited    bool          // an attempt was refused
	vain      int           // how often it moved from one queue to another, because another name was held
	keptSince time.Duration // since when it has kept a name while it waits for another one; 0: it keeps none
	reserved  time.Duration // for how long it keeps a name next time; 0: it has kept none in vain
	slotTries int           // attempts for a slot that a node reported as free
	since     time.Duration // when Acquire began
	repeated  bool          // it does not wait, and was repeated: see isOutdated
	admitted  bool          // the limiter counts an attempt of it
}

func (a *acquisition) run(ctx context.Context) (*Lease, error) {
	if a.r.Wait != 0 && a.pending == nil && (a.r.Held || a.q.contended.has(&a.target, a.since)) {
		a.enter()
	}
	a.policy = newRetryPolicy(a.q, a.r, a.since)
	if a.r.Yield {
		a.pause(ctx, a.policy.limitDelay(a.q.yieldDelay(a.r.lock()), a.q.clock()), nil)
	}
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
		if a.r.Wait == 0 && !a.repeated && isOutdated(err) && a.enterLimiterFirst(ctx) {
			a.repeated = true
			continue
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

// attempt finishes the pending attempt, if there is one, or makes a new one. If it is refused, the
// request gets a place in the nodes' queues before they release what the attempt has taken.
func (a *acquisition) attempt(ctx context.Context, start time.Duration) (lease *Lease, err error) {
	defer func() { a.leaveLimiter(start, err) }()
	at := a.pending
	a.pending = nil
	if at == nil {
		at = a.q.newAttempt(a.r, &a.target, start)
		if !a.q.waiters.HasQuit() {
			at.entry = a.entry
		}
		at.begin()
	}
	a.entered = at.entry != nil
	lease, err = at.finish(ctx)
	if err == nil {
		if a.waited {
			a.q.contended.note(&a.target, start)
		}
		return lease, nil
	}
	a.waited = a.waited || errors.Is(err, ErrHeld)
	if held, isHeld := errors.AsType[*HeldError](err); isHeld && a.r.Wait != 0 && ctx.Err() == nil && !isClosed(a.r.StopRetrying) && !a.q.waiters.HasQuit() {
		if blocked := a.target.keyAt(held.blocked); a.entry == nil {
			a.enter()
			a.entry.queues = []string{blocked}
		} else {
			a.stand(blocked)
		}
		at.reenter(a.entry)
	} else {
		at.abandon()
	}
	return nil, err
}

// enter makes all later attempts enter the nodes' queues.
func (a *acquisition) enter() {
	if a.entry == nil {
		a.entry = a.q.newEntry(a.r, &a.target, a.q.ticket(a.r.asked(a.since)), a.q.turn())
	}
}

// patientMoves is how often a request for several names goes to another queue before it keeps what it has
// its turn for, and reservedTurns for how many turns it does at first. longestReserved bounds for how long.
const (
	patientMoves    = 16
	reservedTurns   = 20
	longestReserved = time.Minute
)

// stand makes a request for several names stand in the queue of the first name that it cannot have, with the
// same ticket. So nothing is kept for it while it waits. After patientMoves it could go on for ever: its
// names are never free at the same time. Then it stays in the queues of the names before that one, and its
// turns are longer. Two such requests do not wait for each other, because the names are sorted. It does so
// for as long as one of these turns, so that a name is not kept while another one is held for long. If that was
// in vain, it gives the name up, and keeps it for twice as long next time: after one more move.
func (a *acquisition) stand(blocked string) {
	e, now, reserved := a.entry, a.q.clock(), max(a.reserved, reservedTurns*a.q.turn())
	before, _ := slices.BinarySearch(e.queues, blocked)
	keeps, wasPatient := slices.Clone(e.queues[:before]), a.vain < patientMoves
	switch {
	case wasPatient:
		keeps = nil
	case a.keptSince != 0 && now-a.keptSince > reserved:
		a.reserved = max(reserved, min(2*reserved, longestReserved))
		a.vain, a.keptSince, keeps = patientMoves-1, 0, nil
	case a.keptSince == 0 && len(keeps) > 0:
		a.keptSince = now
	}
	queues := append(keeps, blocked)
	if moves := !slices.Equal(queues, e.queues); moves && wasPatient {
		a.vain++
	} else if !moves && wasPatient == (a.vain < patientMoves) {
		return
	}
	a.entered = false
	if isPatient := a.vain < patientMoves; isPatient != wasPatient {
		turn := reserved
		if isPatient {
			turn = a.q.turn()
		}
		e.End()
		a.entry = a.q.newEntry(a.r, &a.target, e.ticket, turn)
	} else {
		left := *e
		left.queues = slices.DeleteFunc(e.queues, func(key string) bool { return slices.Contains(queues, key) })
		left.leave()
	}
	a.entry.queues = queues
}

// waitToRetry waits until another attempt makes sense, and reports whether to make one.
func (a *acquisition) waitToRetry(ctx context.Context, err error) (again bool) {
	held, isHeld := errors.AsType[*HeldError](err)
	if isHeld && a.nextSlot(held.freeSlot) {
		return a.enterLimiter(ctx)
	}
	delay, again := a.policy.next(err, a.q.clock(), a.position())
	if again && isHeld && !a.entered && !a.q.waiters.HasQuit() { // it is in no queue yet
		delay = 0
	}
	return again && a.pause(ctx, delay, held) && a.enterLimiter(ctx)
}

// position returns the position of the request in the nodes' queues; 0: a quorum of nodes does not
// have it, or cannot call it, or skip this process.
func (a *acquisition) position() int {
	if a.entry == nil || a.q.waiters.HasQuit() || !a.q.isCalled() {
		return 0
	}
	return a.entry.waiter.Position()
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

// pause waits for delay, or until it is the turn of the request. It returns false if the caller
// closed Request.StopRetrying. held is why the last attempt was refused; nil: it was not.
func (a *acquisition) pause(ctx context.Context, delay time.Duration, held *HeldError) (again bool) {
	if delay == 0 { // earlier calls do not matter
		return !isClosed(a.r.StopRetrying)
	}
	if ctx.Err() != nil {
		return true
	}
	began := a.q.clock()
	due := began + delay
	timer := time.NewTimer(delay)
	defer timer.Stop()
	var news <-chan struct{}
	if a.entry != nil {
		news = a.entry.waiter.News()
	}
	for {
		select {
		case <-news:
			called, turn := a.entry.waiter.Called()
			if a.q.system.Decides(called) {
				a.q.counts.wakeups.Add(1)
				return true
			}
			now, sooner := a.q.clock(), due
			switch {
			case called != 0: // other nodes may be down and not call
				sooner = now + minorityTimeouts*a.q.options.NodeTimeout
			case turn != 0: // those before it may not take the lock in their turn
				sooner = now + turn + turnMargin
			}
			if position := a.position(); held != nil && position > 0 { // other nodes have answered meanwhile
				sooner = min(sooner, began+a.policy.untilFree(held, a.policy.polling, position))
			}
			if sooner < due {
				due = sooner
				timer.Reset(due - now)
			}
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		case <-a.r.StopRetrying:
			return false
		case <-a.q.closing:
			return true // the next attempt fails, and its error says why
		}
	}
}

// minorityTimeouts is after how many node timeouts a request asks that fewer nodes than a quorum have
// called: these may only be late with a release.
const minorityTimeouts = 3

// turnMargin is how much later than the end of another waiter's turn a request asks: Redis expires
// keys in steps of a millisecond.
const turnMargin = 2 * time.Millisecond

// end leaves the limiter, and releases a pending attempt and the place in the nodes' queues.
func (a *acquisition) end() {
	a.leaveLimiter(0, nil)
	if a.pending != nil {
		a.pending.abandon()
	}
	if a.entry != nil {
		a.entry.End() // also after a grant: nodes that did not grant it still have the entry
	}
}
