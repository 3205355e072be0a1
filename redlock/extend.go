package redlock

import (
	"context"
	"fmt"
	"time"
)

// Extend extends the lease by ttl from now on (0: by its present ttl). It waits for a quorum for
// at most the node timeout (twice that if the nodes' epochs have just changed), or until ctx is done.
// A shorter ttl applies from then on, but no deadline ever moves back. The error matches ErrNoQuorum
// (the lease is as valid as before), ErrLost, ErrReleased or ErrRequest.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	ttl, err := l.checkTTL(ttl)
	if err == nil {
		err = l.Err()
	}
	if err != nil {
		return err
	}
	return l.extend(ctx, ttl)
}

// checkTTL returns the ttl of an extension, in whole milliseconds.
func (l *Lease) checkTTL(ttl time.Duration) (time.Duration, error) {
	most := l.keeper.q.options.MaxTTL
	if ttl == 0 {
		ttl = l.TTL()
	}
	if ttl < MinTTL || ttl > most {
		return 0, fmt.Errorf("%s: %w: ttl %v: must be between %v and %v", l.name(), ErrRequest, ttl, MinTTL, most)
	}
	ttl = ttl.Truncate(time.Millisecond)
	if l.guard > ttl/maxGuardShare {
		return 0, fmt.Errorf("%s: %w: ttl %v: its guard of %v needs at least twice that", l.name(), ErrRequest, ttl, l.guard)
	}
	return ttl, nil
}

// extend extends the lease by a ttl that checkTTL returned.
func (l *Lease) extend(ctx context.Context, ttl time.Duration) error {
	return updated(func() error { return l.extendOnce(ctx, ttl) })
}

func (l *Lease) extendOnce(ctx context.Context, ttl time.Duration) error {
	k := l.keeper
	now := k.clock()
	e := newExtension(k, []*Lease{l}, now)
	e.ttls[0], e.byClient = l.bounded(ttl, now).Truncate(time.Millisecond), true
	e.send()
	select {
	case <-e.done:
		if e.exchanges == 0 && !e.isGranted(0) && l.tokens().former != "" {
			return l.extendOnce(ctx, ttl) // the nodes had a new token, which e did not know: once per lease at most
		}
		return e.result(l)
	case <-ctx.Done():
	}
	select {
	case <-e.done: // at the same time as ctx: the result is known
		return e.result(l)
	default:
		return fmt.Errorf("%s: extend: %w", l.name(), context.Cause(ctx))
	}
}

// bounded limits a new ttl to what Request.Max leaves, but not below the present ttl.
// Otherwise a guard that is a share of a larger ttl could use up all that is left.
func (l *Lease) bounded(ttl, now time.Duration) time.Duration {
	if l.maxHoldEnd == 0 {
		return ttl
	}
	return min(ttl, max(l.maxHoldEnd-now, l.TTL()))
}

func (e *extension) isGranted(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.k.q.system.Decides(e.granted[i])
}

// result returns the result of an extension of one lease.
func (e *extension) result(l *Lease) error {
	if err := l.Err(); err != nil {
		return err
	}
	if e.isGranted(0) {
		return nil
	}
	return e.cause(0)
}
