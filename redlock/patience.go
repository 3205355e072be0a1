package redlock

import (
	"errors"
	"time"
)

// patience spaces attempts and ends them: at random, so that contenders do not
// meet again and again; growing, so that a long wait costs little; and never
// past the instant at which the lock may be free.
type patience struct {
	jitter func(n time.Duration) time.Duration
	spread func() time.Duration // keeps apart who tries at the same instant
	until  time.Duration        // no attempt is begun later; negative: no end
	ttl    time.Duration
	voted  time.Duration // when a quorum voted last, or the start
	limit  time.Duration // of the next delay
}

const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 250 * time.Millisecond
	// leastMark is how long the nodes know of one who waits, at least: until he asks
	// again.
	leastMark = 2 * lastRetry
	// toldShare: who is told when the lock is free tries nevertheless when between
	// one and two such parts of his ttl are over, so that what the nodes know of him
	// (bell and mark, which last for that ttl) does not end before.
	toldShare = 6
)

// newPatience is that of an Acquire that was called at since, and began its first
// attempt at start.
func (q *Quorum) newPatience(r *Request, since, start time.Duration) *patience {
	p := &patience{until: since + r.Wait, ttl: r.TTL, voted: start - r.Dry, limit: firstRetry}
	p.jitter = func(n time.Duration) time.Duration { return q.rules.Jitter(r.lock(), n) }
	p.spread = func() time.Duration { return q.spread(r.lock(), 0) }
	if r.Wait < 0 {
		p.until = -1
	}
	return p
}

// isQuarantine tells an error that time alone mends: whoever waits rides it out.
func isQuarantine(err error) bool {
	e, ok := errors.AsType[*NoQuorumError](err)
	return ok && e.Quarantine > 0
}

// next says how long to wait before the next attempt, or that there is none. Who
// will be told when the lock is free waits long.
func (p *patience) next(err error, now time.Duration, told bool) (delay time.Duration, again bool) {
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

// over is signalled when no attempt is to be begun any more. Nil: there is no end.
func (p *patience) over(now time.Duration) <-chan time.Time {
	if p == nil || p.until < 0 {
		return nil
	}
	return time.After(p.until - now)
}

// stoodStill: for so long no node was asked, which says nothing of them.
func (p *patience) stoodStill(d time.Duration) {
	if p != nil {
		p.voted += d
	}
}

// within bounds a delay by the time that is left.
func (p *patience) within(delay, now time.Duration) time.Duration {
	if p == nil || p.until < 0 {
		return delay
	}
	return max(min(delay, p.until-now), 0)
}
