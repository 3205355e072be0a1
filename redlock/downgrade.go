package redlock

import (
	"context"
	"fmt"
	"time"
)

// Downgrade makes an exclusive lease a shared one, and extends it as [Lease.Extend] does. No
// other client can get the lock exclusively in between. Readers can join once a quorum of
// nodes has the lock as shared. The lease keeps its ID and its fencing token. Downgrade only
// extends a lease that is already shared. A shared lease cannot become exclusive: two readers
// that both tried would wait for each other.
//
// The holder must have stopped writing before the call, because readers may join before it
// returns. So the lease is shared after the call even if it failed. Only after ErrRequest, or
// an error of record, is the lease unchanged. After ErrNoQuorum the nodes may still keep
// readers out. Each later extension makes the lock shared on the nodes that it reaches, and a
// repair writes the lock as shared.
//
// Downgrade returns ErrRequest for the lease of a semaphore.
//
// Before an exclusive lease becomes shared, Downgrade calls record (may be nil), in which the
// caller records the change. If record returns an error, Downgrade returns that error.
func (l *Lease) Downgrade(ctx context.Context, ttl time.Duration, record func() error) error {
	if l.Slots() > 0 {
		return fmt.Errorf("%s: %w: the lease of a semaphore cannot become a shared one", l.name(), ErrRequest)
	}
	ttl, err := l.checkTTL(ttl)
	if err == nil {
		err = l.Err()
	}
	if err == nil && record != nil && !l.Shared() {
		err = record()
	}
	if err == nil {
		err = l.beginDowngrade()
	}
	if err != nil {
		return err
	}
	return l.extend(ctx, ttl)
}

// beginDowngrade marks the lease shared, before the change is sent to a node.
func (l *Lease) beginDowngrade() error {
	l.awaitExchange()
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.errAtLocked(now)
	if err == nil && l.kind == "" {
		l.downgraded = true
	}
	return err
}
