package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// isOutdated reports whether a call found no quorum because nodes had other epochs than this process
// knew. It knows them after the call, so a call that does not wait is repeated once. Epochs change while
// nodes are being changed, and nobody is to be refused for that.
func isOutdated(err error) bool {
	none, ok := errors.AsType[*NoQuorumError](err)
	return ok && slices.ContainsFunc(none.Failed, func(failure *NodeError) bool { return redis.IsKind(failure.Err, "EPOCH") })
}

// updated calls do, and a second time if the first error isOutdated. It returns the last error.
func updated(do func() error) error {
	err := do()
	if isOutdated(err) {
		err = do()
	}
	return err
}

// retryPolicy decides whether there is another attempt, and when it begins. Delays are random, so
// that contenders do not collide repeatedly. They grow, so that a long wait costs little. They
// never exceed the time until the lock may be free.
type retryPolicy struct {
	q        *Quorum
	request  *Request
	deadline time.Duration // no attempt begins later; negative: no limit
	maxDelay time.Duration // of the next delay
	polling  time.Duration // the last delay, if the nodes do not call the request
}

const (
	minRetryDelay = 20 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
	// foreignInterval is how often the first waiter asks for a lock of another Redlock client, which
	// makes no node call it.
	foreignInterval = 250 * time.Millisecond
	// nextLater is how much later than the waiter before it each of the next waiters asks when the
	// holder's lease may have ended: the waiters before it may have ended, too.
	nextLater = 200 * time.Millisecond
	// askingWaiters is how many waiters ask then. A node tells a waiter that becomes one of them: ASKING
	// and LATER in queue.lua are the same two numbers.
	askingWaiters = 4
)

// newRetryPolicy returns the policy of a request that was made at since.
func newRetryPolicy(q *Quorum, r *Request, since time.Duration) retryPolicy {
	p := retryPolicy{q: q, request: r, deadline: since + r.Wait, maxDelay: minRetryDelay}
	if r.Wait < 0 {
		p.deadline = -1
	}
	return p
}

// jitter returns a random time in [0, n).
func (p *retryPolicy) jitter(n time.Duration) time.Duration {
	return p.q.hooks.Jitter(p.request.lock(), n)
}

// next returns the delay before the next attempt, and whether there is one. position is the place of
// the request in the nodes' queues, from 1 on. The nodes call it when it is its turn, so a later attempt
// is for lost calls. 0: the nodes do not call it. A waiter outlasts any time without a quorum: the
// holder may outlast it, too, and only the client knows how long it can wait.
func (p *retryPolicy) next(err error, now time.Duration, position int) (delay time.Duration, again bool) {
	if p.deadline >= 0 && now >= p.deadline {
		return 0, false
	}
	delay = p.maxDelay/4 + p.jitter(3*p.maxDelay/4)
	p.maxDelay, p.polling = min(2*p.maxDelay, maxRetryDelay), delay
	if held, isHeld := errors.AsType[*HeldError](err); isHeld && !held.split {
		delay = p.untilFree(held, delay, position)
	}
	return p.limitDelay(delay, now), true
}

// untilFree returns the time until the lock may be free for the request. polling is the delay if
// the nodes do not call it.
func (p *retryPolicy) untilFree(held *HeldError, polling time.Duration, position int) time.Duration {
	left := RenewEntry - p.jitter(RenewEntry/8)
	switch held.TTL {
	case 0: // the nodes that answered show different holders
		left = polling
	case Endless:
	default:
		left = min(left, held.TTL+turnMargin)
	}
	switch {
	case position == 0:
		return min(polling, left+p.jitter(minRetryDelay/8)) // waiters that were refused together ask at different times
	case position == 1 && held.foreign:
		return min(left, foreignInterval)
	case position == 2 && held.Waiting:
		return left
	case position <= askingWaiters:
		return left + time.Duration(position-1)*nextLater
	}
	return RenewEntry - p.jitter(RenewEntry/8)
}

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

// yieldDelay returns how long a client waits to let clients of other libraries go first. They may be
// farther from the nodes, and how much farther is unknown. So the delay is random, and rarely long: a
// delay that is twice as long is half as likely. Its limit is the node timeout, because the farthest
// client has an answer by then. (The last round trip may have been longer: the node hung, or this
// process was stopped.)
func (q *Quorum) yieldDelay(name string) time.Duration {
	const parts = 1000
	shortest := min(max(yieldTrips*q.roundTrip(), minYieldDelay), q.options.NodeTimeout)
	return min(shortest*parts/(1+q.hooks.Jitter(name, parts)), q.options.NodeTimeout)
}

const (
	yieldTrips    = 6
	minYieldDelay = 2 * time.Millisecond
)
