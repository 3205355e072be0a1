package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Acquire locks a name, or several at once, on a quorum of nodes, retrying until
// granted, until r.Wait is over, or ctx is done. The error matches ErrHeld or
// ErrNoQuorum, whichever the last attempt met; ErrRequest; or the cause of ctx's
// end. Where no quorum could vote for a whole ttl, it gives up with ErrNoQuorum.
// Nothing is left on any node when it fails: what an attempt may have set is
// released in the background, repeatedly if need be.
//
// While somebody else holds the lock it listens for its release on the nodes
// (CLIENT TRACKING) and tries again then, after a random time that spreads those
// who were woken together; and otherwise twice a ttl or so, and when the lease of
// the holder could be over. Where no quorum of nodes has tracking, it tries again
// at random intervals.
func (q *Quorum) Acquire(ctx context.Context, r Request) (*Lease, error) {
	a := acquiring{q: q, r: &r, begun: r.Begun}
	defer a.end()
	if err := q.check(&r); err != nil {
		return nil, err
	}
	a.target = q.target(&r)
	return a.run(ctx)
}

// acquiring is one Acquire.
type acquiring struct {
	q        *Quorum
	r        *Request
	target   target
	begun    *Begun // an attempt that nobody has waited for yet
	patience *patience
	waiter   *waiter // nil: it does not listen
	marked   bool    // readers may be kept waiting by its mark
	places   int     // how many it asked for because they were said to be free
	splits   int     // attempts in a row that nobody won
}

func (a *acquiring) run(ctx context.Context) (*Lease, error) {
	if a.r.Held || a.r.Yield {
		a.listen()
	}
	if a.r.Yield {
		a.pause(ctx, a.q.yielding(a.r.lock()))
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
		if a.r.Failed != nil {
			a.r.Failed(err)
		}
		if a.patience == nil {
			a.patience = a.q.newPatience(a.r, start)
		}
		if !a.rest(ctx, err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: given up: %w", a.r.lock(), context.Cause(ctx))
}

// attempt is the one that was begun already, or a new one.
func (a *acquiring) attempt(ctx context.Context, start time.Duration) (*Lease, error) {
	if begun := a.begun; begun != nil {
		a.begun = nil
		return begun.attempt.finish(ctx)
	}
	t := a.q.newAttempt(a.r, &a.target, start)
	t.waiter = a.waiter
	t.begin()
	return t.finish(ctx)
}

// rest waits until another attempt makes sense, and tells whether there is to be
// one.
func (a *acquiring) rest(ctx context.Context, err error) (again bool) {
	held, _ := errors.AsType[*HeldError](err)
	news := a.learn(held)
	delay, again := a.patience.next(err, a.q.clock(), a.waiter != nil && a.q.isTracked())
	switch {
	case !again:
		return false
	case news:
		return !isClosed(a.r.Enough)
	}
	return a.pause(ctx, delay)
}

// learn takes in what a refusal says. It is true where that makes another attempt
// worth while at once: one that listens, or for a place that is free.
func (a *acquiring) learn(held *HeldError) (news bool) {
	if held == nil {
		return false
	}
	if held.split {
		a.splits++
	} else {
		a.splits = 0
	}
	if a.r.Wait == 0 {
		return held.free > 0 && a.nextSlot(held.free)
	}
	a.marked = a.marked || held.Shared && !a.r.Shared
	if a.waiter == nil && a.q.isTracked() {
		a.listen()
		news = true
	}
	if a.waiter != nil && held.foreign && a.q.bells.alsoTo(a.waiter, &a.target) {
		news = true
	}
	return held.free > 0 && a.nextSlot(held.free) || news
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// nextSlot has the next attempt ask for another place.
func (a *acquiring) nextSlot(free int) bool {
	a.target.slot = free
	a.places++
	return a.places%(a.r.Slots+1) != 0 // others may be quicker, again and again
}

// listen has the attempts from now on listen for the release of the lock.
func (a *acquiring) listen() {
	a.waiter = a.q.bells.join(&a.target, newToken(a.r.Holder))
}

// pause waits for delay, or until the lock may be free. It is false where the
// caller has had enough.
func (a *acquiring) pause(ctx context.Context, delay time.Duration) (again bool) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	rung, settle := a.waiter.rung(), a.q.options.NodeTimeout
	for {
		select {
		case <-rung:
			if a.waiter.open() >= a.q.quorum {
				rung = nil
				a.q.counts.wakeups.Add(1)
				timer.Reset(a.patience.within(a.q.spread(a.r.lock(), a.splits), a.q.clock()))
			} else if delay > settle { // the other nodes may be down, and say nothing
				delay = settle
				timer.Reset(delay)
			}
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		case <-a.r.Enough:
			return false
		}
	}
}

// end leaves nothing behind.
func (a *acquiring) end() {
	if a.begun != nil {
		a.begun.Abandon()
	}
	if a.waiter == nil {
		return
	}
	a.q.bells.leave(a.waiter)
	if a.marked {
		now := a.q.clock()
		ops := a.target.each(nil, operation{letter: opDone, token: a.waiter.mark})
		a.q.call(call{op: "done", ops: ops}, now)
	}
}
