package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Locker returns a sync.Locker for the lock name. Locks of one Client exclude each other, so a
// Locker works between goroutines of this process and between hosts. With WithShared or WithSlots
// several goroutines can hold it at the same time.
//
// A sync.Locker has no errors and no context. So Lock waits without a bound, unless WithWait is
// given, and panics with an error that [errors.Is] matches:
//   - Lock panics with the error of [Client.Lock] if it cannot take the lock. Examples are
//     ErrDenied, ErrInvalid, ErrUnavailable once WithWait has passed, and ErrClosed.
//   - Unlock panics with ErrNotHeld if this Locker is not locked.
//   - Unlock panics with ErrLost if a lease of this Locker was lost before: code under the lock may
//     have run at the same time as another holder.
//
// Unlock ignores other errors, because the lock expires. Code under a Locker learns of a loss only
// at Unlock. If the code can stop earlier, use [Client.Do] instead.
func (c *Client) Locker(name string, opts ...Option) sync.Locker {
	return &locker{client: c, name: name, opts: opts}
}

// locker implements Locker.
type locker struct {
	client *Client
	name   string
	opts   []Option

	mu     sync.Mutex // guards leases; Client.mu may be taken inside it
	leases []*Lease   // taken by Lock, not yet by Unlock
}

// Lock takes the lock, or panics.
func (l *locker) Lock() {
	lease, err := l.client.Lock(context.Background(), l.name, l.opts...)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = append(l.leases, lease)
}

// Unlock releases the lock, or panics.
func (l *locker) Unlock() {
	lease := l.takeLease()
	if lease == nil {
		panic(fmt.Errorf("unlock %q: %w: this Locker is not locked", l.name, ErrNotHeld))
	}
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	if err := lease.Unlock(ctx); errors.Is(err, ErrLost) {
		panic(err)
	}
}

// takeLease removes a lease, or returns nil if there is none. It prefers a lost lease: another
// goroutine may have taken the lock since the loss, and its lease must stay until its own Unlock.
func (l *locker) takeLease() *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.leases) - 1
	for i, lease := range l.leases {
		if lease.Validity() == 0 {
			last = i
			break
		}
	}
	if last < 0 {
		return nil
	}
	lease := l.leases[last]
	l.leases = append(l.leases[:last], l.leases[last+1:]...)
	return lease
}
