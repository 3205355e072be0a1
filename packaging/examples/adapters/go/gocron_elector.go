package adapters

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/client"
)

// Elector is a gocron.Elector (v2): one host runs all jobs. gocron ignores a Locker beside it.
//
//	elector := &adapters.Elector{}
//	go elector.Run(ctx, c, "scheduler")
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
type Elector struct{ lease atomic.Pointer[client.Lease] }

// Run waits for the lock and holds it, again and again, until ctx ends.
func (e *Elector) Run(ctx context.Context, c *client.Client, name string) {
	for ctx.Err() == nil {
		_ = c.Do(ctx, name, func(ctx context.Context, l *client.Lease) error {
			e.lease.Store(l)
			<-ctx.Done()
			return nil
		})
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // the lock was lost, or there is no quorum
		}
	}
}

// IsLeader returns nil if redlockd says that the lock is held. Jobs call it again before each write.
func (e *Elector) IsLeader(ctx context.Context) error {
	if l := e.lease.Load(); l != nil {
		return l.Check(ctx)
	}
	return errors.New("another host is the leader, or none yet")
}
