package redlock

import (
	"errors"
	"slices"
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
	// notifiedShare: a waiter that the nodes notify retries nevertheless after between one and
	// two such shares of its ttl, so that its wake-up key and its intent on the nodes, which
	// last for that ttl, do not expire before.
	notifiedShare = 6
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
			delay = p.ttl/notifiedShare + p.jitter(p.ttl/notifiedShare)
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

// Waiters that were woken together retry at a random time within a window of so many round
// trips: long enough, mostly, for one of them to have its requests on all nodes before the
// next one begins. Where that was not so, and nobody won, it is twice as long.
const (
	windowTrips = 3
	maxDoubled  = 4
	leastWindow = 300 * time.Microsecond
)

// spread is how long one of several waits who were woken together.
func (q *Quorum) spread(name string, splits int) time.Duration {
	return q.rules.Jitter(name, q.window()<<min(splits, maxDoubled))
}

// yielding is how long one waits who lets others go first. They may be farther away
// from the nodes, by how much is not known: so it is long rarely, twice as long half
// as often, up to the node timeout, by which the farthest have an answer.
func (q *Quorum) yielding(name string) time.Duration {
	const parts = 1000
	least := max(2*q.window(), leastYield)
	return min(least*parts/(1+q.rules.Jitter(name, parts)), max(least, q.options.NodeTimeout))
}

const leastYield = 2 * time.Millisecond

// window is a few round trips to a quorum of nodes.
func (q *Quorum) window() time.Duration {
	trips := make([]time.Duration, 0, len(q.lanes))
	for _, l := range q.lanes {
		if trip := l.RoundTripTime(); trip > 0 {
			trips = append(trips, trip)
		}
	}
	slices.Sort(trips)
	if len(trips) < q.quorum {
		return leastWindow
	}
	return min(max(windowTrips*trips[q.quorum-1], leastWindow), q.options.NodeTimeout)
}

// isTracked reports whether enough nodes tell when a lock is released.
func (q *Quorum) isTracked() bool {
	n := 0
	for _, l := range q.lanes {
		if l.IsTracking() {
			n++
		}
	}
	return n >= q.quorum
}

// starvationGuard decides when a waiter gets a reservation: the nodes then refuse the lock
// to all others for a while. Without it a waiter might never be first, as there is no queue
// between hosts: one that wants several names may not meet an instant at which all are
// free, and one that is far from the nodes is always later.
//
// A reservation lasts for a short time; if it was in vain, more other holders are needed
// for the next one. (A name of several is reserved while the waiter waits for a later one,
// and the holder of that one may want this one next. That cannot happen among clients that
// take nested names in alphabetical order.) One holder that keeps the lock for long counts
// once.
type starvationGuard struct {
	need   int           // how many other holders the next reservation needs
	others int           // how many were seen since the last one
	last   string        // token of the last of them; "": not known
	since  time.Duration // when the first of them was seen
	until  time.Duration // when the reservation ends; 0: there is none
}

const (
	// maxReserveAfter bounds reserveAfter, which doubles after each reservation in vain.
	maxReserveAfter = 256
	// reservationShare is the part of the time that those holders took for which the lock is
	// reserved: each held it for a sixteenth on average, and of a few names the longest-held
	// is free by then.
	reservationShare = 4
)

// left returns how long the reservation lasts.
func (g *starvationGuard) left(now time.Duration) time.Duration {
	return max(g.until-now, 0)
}

// note counts a holder that refused the waiter; nil: no quorum voted. A reservation lasts
// between least and most; with most 0 there is none. note reports whether one begins: the
// next attempt tells the nodes.
func (g *starvationGuard) note(held *HeldError, now, least, most time.Duration) (begins bool) {
	if now < g.until {
		return false
	}
	if g.until > 0 { // it was in vain
		g.need, g.others, g.until = min(2*g.need, maxReserveAfter), 0, 0
	}
	if held == nil || held.token != "" && held.token == g.last {
		return false
	}
	g.last = held.token
	if g.others++; g.others == 1 {
		g.since = now
	}
	if g.others < g.need || most == 0 {
		return false
	}
	g.until = now + min(max((now-g.since)/reservationShare, least), most)
	return true
}
