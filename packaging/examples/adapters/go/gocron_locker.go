package adapters

import (
	"context"
	"sync"

	"github.com/go-co-op/gocron/v2"
	"github.com/redlockd/redlockd/client"
)

// Locker is a gocron.Locker (v2): each run of a job happens on one of the hosts that schedule it.
//
//	locker := &adapters.Locker{Client: c, Options: []client.Option{client.WithMin(time.Minute)}}
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// WithMin skips the run of a host whose clock is late. gocron tells no job of a loss: it asks Check before each write.
type Locker struct {
	Client  *client.Client
	Options []client.Option
	leases  sync.Map // by the names of the jobs
}

// Lock fails if another run holds the lock. gocron then skips this one.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.Client.Lock(ctx, job, append([]client.Option{client.WithWait(0)}, l.Options...)...)
	if err == nil {
		l.leases.Store(job, lease)
	}
	return held{lease}, err
}

// Check returns nil if the lock of a running job is held.
func (l *Locker) Check(ctx context.Context, job string) error {
	lease, _ := l.leases.Load(job)
	return lease.(*client.Lease).Check(ctx)
}

type held struct{ *client.Lease }

func (h held) Unlock(ctx context.Context) error { return h.Lease.Unlock(ctx) } // also releases if ctx is done
