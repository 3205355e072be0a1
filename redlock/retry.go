package redlock

import (
	"errors"
	"slices"
	"time"
)

// retryPolicy decides whether there is another attempt, and when it begins. Delays are random, so
// that contenders do not collide repeatedly. They grow, so that a long wait costs little. They
// never exceed the time until the lock may be free.
type retryPolicy struct {
	q        *Quorum
	request  *Request
	deadline time.Duration // no attempt begins later; negative: no limit
	ttl      time.Duration
	maxDelay time.Duration // of the next delay
}

const (
	minRetryDelay = 20 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
	// notifiedShare is for a waiter that the nodes notify. It also retries after one to two such
	// shares of its ttl. Its wake-up key and its writer intent on the nodes last for that ttl, so
	// they do not expire before.
	notifiedShare = 6
)

// newRetryPolicy returns the policy of a request that was made at since.
func newRetryPolicy(q *Quorum, r *Request, since time.Duration) retryPolicy {
	p := retryPolicy{q: q, request: r, deadline: since + r.Wait, ttl: r.TTL, maxDelay: minRetryDelay}
	if r.Wait < 0 {
		p.deadline = -1
	}
	return p
}

// jitter returns a random time in [0, n).
func (p *retryPolicy) jitter(n time.Duration) time.Duration {
	return p.q.rules.Jitter(p.request.lock(), n)
}

// next returns the delay before the next attempt, and whether there is one. The delay is
// long for a waiter that the nodes notify. A waiter outlasts any time without a quorum: the holder
// may outlast it, too, and only the client knows how long it can wait.
func (p *retryPolicy) next(err error, now time.Duration, notified bool) (delay time.Duration, again bool) {
	if p.isOver(now) {
		return 0, false
	}
	delay = p.maxDelay/4 + p.jitter(3*p.maxDelay/4)
	p.maxDelay = min(2*p.maxDelay, maxRetryDelay)
	if held, isHeld := errors.AsType[*HeldError](err); isHeld {
		if notified && !held.split {
			delay = p.ttl/notifiedShare + p.jitter(p.ttl/notifiedShare)
		}
		if held.TTL > 0 && held.TTL != Endless {
			delay = min(delay, held.TTL+time.Millisecond+p.q.spreadDelay(p.request.lock(), 0))
		}
	}
	return p.limitDelay(delay, now), true
}

// isOver reports whether no further attempt may begin.
func (p *retryPolicy) isOver(now time.Duration) bool { return p.deadline >= 0 && now >= p.deadline }

// left returns for how long attempts may still begin; negative: without limit.
func (p *retryPolicy) left(now time.Duration) time.Duration {
	if p.deadline < 0 {
		return -1
	}
	return max(p.deadline-now, 0)
}

// expired returns a channel that fires when no further attempt may begin. Nil: there is no
// limit.
func (p *retryPolicy) expired(now time.Duration) <-chan time.Time {
	if p.deadline < 0 {
		return nil
	}
	return time.After(p.deadline - now)
}

// limitDelay limits a delay to the time that is left.
func (p *retryPolicy) limitDelay(delay, now time.Duration) time.Duration {
	if p.deadline < 0 {
		return delay
	}
	return max(min(delay, p.deadline-now), 0)
}

// Waiters that were woken together retry at a random time within a window of retryWindowTrips round
// trips. That is usually long enough for one of them to reach all nodes before the next one
// begins. After each attempt that nobody won, the window doubles.
const (
	retryWindowTrips = 3
	maxDoublings     = 4
	minRetryWindow   = 300 * time.Microsecond
)

// spreadDelay returns a random delay for a waiter that was woken together with others.
func (q *Quorum) spreadDelay(name string, splits int) time.Duration {
	return q.rules.Jitter(name, q.retryWindow()<<min(splits, maxDoublings))
}

// yieldDelay returns how long a client waits to let others go first. They may be farther from the
// nodes, and how much farther is unknown. So the delay is random, and rarely long: a delay that
// is twice as long is half as likely. Its limit is the node timeout, because the farthest client
// has an answer by then.
func (q *Quorum) yieldDelay(name string) time.Duration {
	const parts = 1000
	shortest := max(2*q.retryWindow(), minYieldDelay)
	return min(shortest*parts/(1+q.rules.Jitter(name, parts)), max(shortest, q.options.NodeTimeout))
}

const minYieldDelay = 2 * time.Millisecond

// retryWindow returns the duration of a few round trips to a quorum of nodes.
func (q *Quorum) retryWindow() time.Duration {
	trips := make([]time.Duration, 0, len(q.lanes))
	for _, l := range q.lanes {
		if trip := l.RoundTripTime(); trip > 0 {
			trips = append(trips, trip)
		}
	}
	slices.Sort(trips)
	if len(trips) < q.quorum {
		return minRetryWindow
	}
	return min(max(retryWindowTrips*trips[q.quorum-1], minRetryWindow), q.options.NodeTimeout)
}

// isTracked reports whether a quorum of nodes notifies waiters of a release.
func (q *Quorum) isTracked() bool {
	n := 0
	for _, l := range q.lanes {
		if l.IsTracking() {
			n++
		}
	}
	return n >= q.quorum
}

// starvationGuard decides when a waiter gets a reservation: for a while, the nodes refuse the
// lock to all other clients. Without it a waiter might never be first, because there is no queue
// between hosts. A waiter for several names might never find all of them free at once. A waiter
// that is far from the nodes is always later than others.
//
// A reservation lasts for a short time. If it expires without a grant, the next one requires more
// other holders. (One of several names is reserved while the waiter waits for a later one, whose
// holder may want the reserved one next. That cannot happen among clients that take nested names
// in alphabetical order.) A client that holds the lock for long counts once.
type starvationGuard struct {
	holdersNeeded int           // how many other holders the next reservation requires
	holdersSeen   int           // how many were seen since the last reservation
	lastToken     string        // token of the last one; "": unknown
	firstSeen     time.Duration // when the first one was seen
	reservedUntil time.Duration // when the reservation ends; 0: there is none
}

const (
	// maxReserveAfter bounds reserveAfter, which doubles after each reservation without a grant.
	maxReserveAfter = 256
	// reservationShare: the lock is reserved for a quarter of the time in which those holders
	// were seen. With reserveAfter holders, each of them held it for a sixteenth on average. By
	// then, even the one of a few names that is held longest is free.
	reservationShare = 4
)

// reservationLeft returns how much longer the reservation lasts.
func (g *starvationGuard) reservationLeft(now time.Duration) time.Duration {
	return max(g.reservedUntil-now, 0)
}

// countHolder counts a holder, for which the waiter was refused; nil: no quorum voted. A
// reservation lasts between shortest and longest; if longest is 0, there is none. countHolder
// reports whether a reservation begins. The next attempt carries it to the nodes.
func (g *starvationGuard) countHolder(held *HeldError, now, shortest, longest time.Duration) (begins bool) {
	if now < g.reservedUntil {
		return false
	}
	if g.reservedUntil > 0 { // the reservation brought no grant
		g.holdersNeeded, g.holdersSeen, g.reservedUntil = min(2*g.holdersNeeded, maxReserveAfter), 0, 0
	}
	if held == nil || held.token != "" && held.token == g.lastToken {
		return false
	}
	g.lastToken = held.token
	if g.holdersSeen++; g.holdersSeen == 1 {
		g.firstSeen = now
	}
	if g.holdersSeen < g.holdersNeeded || longest == 0 {
		return false
	}
	g.reservedUntil = now + min(max((now-g.firstSeen)/reservationShare, shortest), longest)
	return true
}
