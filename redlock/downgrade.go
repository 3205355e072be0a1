package redlock

import (
	"context"
	"fmt"
	"time"
)

// Downgrade makes an exclusive lease a shared one, and extends it as [Lease.Extend] does. At
// no instant can another client get the lock exclusively. Other readers can join once a
// quorum of nodes has the lock as shared. The lease keeps its ID and its fencing token. A
// shared lease is only extended. The way back does not exist: two readers that both waited to
// be the writer would wait for each other.
//
// The holder must have stopped writing before the call: readers may join before it returns.
// So whatever it returns, except ErrRequest, the lease is shared from then on, and it never
// counts as exclusive again. After ErrNoQuorum readers may still be kept out. Each later
// extension asks the nodes again, and a repair writes the lock as shared.
//
// ErrRequest also means that the lease is one of a semaphore. The lease is unchanged then.
//
// Downgrade calls noting (may be nil) before the lease is shared, if it is not yet. If noting
// returns an error, Downgrade returns it, and the lease is unchanged.
func (l *Lease) Downgrade(ctx context.Context, ttl time.Duration, noting func() error) error {
	if l.Slots() > 0 {
		return fmt.Errorf("%s: %w: the lease of a semaphore cannot become a shared one", l.name(), ErrRequest)
	}
	ttl, err := l.checkTTL(ttl)
	if err == nil {
		err = l.Err()
	}
	if err == nil && noting != nil && !l.Shared() {
		err = noting()
	}
	if err == nil {
		err = l.beginDowngrade()
	}
	if err != nil {
		return err
	}
	return l.extend(ctx, ttl)
}

// beginDowngrade makes the lease a shared one here, before a node knows.
func (l *Lease) beginDowngrade() error {
	l.awaitExchange()
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.errAt(now)
	if err == nil && l.kind == "" {
		l.downgraded = true
	}
	return err
}
