package redlock

import (
	"errors"
	"time"
)

// retryPolicy decides when the next attempt begins, and whether there is one. Delays are
// random, so that contenders do not meet again and again; they grow, so that a long wait
// costs little; and they never pass the instant at which the lock may be free.
type retryPolicy struct {
	jitter func(n time.Duration) time.Duration
	spread func() time.Duration // separates contenders that retry at the same instant
	until  time.Duration        // no attempt begins later; negative: no end
	ttl    time.Duration
	voted  time.Duration // when a quorum voted last, or the start
	limit  time.Duration // of the next delay
}

const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 250 * time.Millisecond
	// leastMark is how long the nodes know of a waiter, at least: until its next attempt.
	leastMark = 2 * lastRetry
	// toldShare: a waiter that the nodes notify retries nevertheless after between one and
	// two such shares of its ttl, so that its wake-up key and its intent on the nodes, which
	// last for that ttl, do not expire before.
	toldShare = 6
)

// newRetryPolicy returns the policy of an Acquire that was called at since, and begins its
// first attempt at start.
func (q *Quorum) newRetryPolicy(r *Request, since, start time.Duration) *retryPolicy {
	p := &retryPolicy{until: since + r.Wait, ttl: r.TTL, voted: start - r.Dry, limit: firstRetry}
	p.jitter = func(n time.Duration) time.Duration { return q.rules.Jitter(r.lock(), n) }
	p.spread = func() time.Duration { return q.spread(r.lock(), 0) }
	if r.Wait < 0 {
		p.until = -1
	}
	return p
}

// isQuarantine reports whether time alone ends the error: a waiter waits for that.
func isQuarantine(err error) bool {
	e, ok := errors.AsType[*NoQuorumError](err)
	return ok && e.Quarantine > 0
}

// next returns the delay before the next attempt, or that there is none. A waiter that the
// nodes notify waits long.
func (p *retryPolicy) next(err error, now time.Duration, told bool) (delay time.Duration, again bool) {
	if errors.Is(err, ErrHeld) || isQuarantine(err) {
		p.voted = now
	}
	if p.until >= 0 && now >= p.until || now-p.voted >= p.ttl {
		return 0, false
	}
	delay = p.limit/4 + p.jitter(3*p.limit/4)
	p.limit = min(2*p.limit, lastRetry)
	if held, ok := errors.AsType[*HeldError](err); ok {
		if told && !held.split {
			delay = p.ttl/toldShare + p.jitter(p.ttl/toldShare)
		}
		if held.TTL > 0 && held.TTL != Endless {
			delay = min(delay, held.TTL+time.Millisecond+p.spread())
		}
	}
	return p.within(delay, now), true
}

// left returns how long attempts may still begin; negative: there is no end.
func (p *retryPolicy) left(now time.Duration) time.Duration {
	if p.until < 0 {
		return -1
	}
	return max(p.until-now, 0)
}

// over fires when no attempt may begin any more. Nil: there is no end.
func (p *retryPolicy) over(now time.Duration) <-chan time.Time {
	if p.until < 0 {
		return nil
	}
	return time.After(p.until - now)
}

// notAsked records that no node was asked for d, which says nothing about the nodes.
func (p *retryPolicy) notAsked(d time.Duration) { p.voted += d }

// within bounds a delay by the time that is left.
func (p *retryPolicy) within(delay, now time.Duration) time.Duration {
	if p == nil || p.until < 0 {
		return delay
	}
	return max(min(delay, p.until-now), 0)
}
