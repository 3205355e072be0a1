package main

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncFleet is redsync over the nodes, as its README shows it. The nemesis must find violations
// of this contender.
type redsyncFleet struct {
	sync    *redsync.Redsync
	closers []func() error
}

func newRedsyncFleet(nodes []string) *redsyncFleet {
	f := &redsyncFleet{}
	var pools []redsyncredis.Pool
	for _, address := range nodes {
		db := redis.NewClient(&redis.Options{Addr: address})
		f.closers = append(f.closers, db.Close)
		pools = append(pools, goredis.NewPool(db))
	}
	f.sync = redsync.New(pools...)
	return f
}

// open returns a worker's view of the fleet. Its close leaves the fleet open.
func (f *redsyncFleet) open() (locker, error) { return redsyncLocker{f}, nil }

type redsyncLocker struct{ *redsyncFleet }

func (redsyncLocker) close() {}

func (f *redsyncFleet) close() {
	for _, do := range f.closers {
		_ = do()
	}
}

func (f *redsyncFleet) lock(names []string, m mode, wait, ttl time.Duration) (*hold, error) {
	if m != exclusive || len(names) > 1 {
		names, m = names[:1], exclusive // it supports neither several names nor modes
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(wait, time.Millisecond))
	defer cancel()
	h := &hold{Names: names, Mode: m, Asked: now()}
	mutex := f.sync.NewMutex(names[0], redsync.WithExpiry(ttl), redsync.WithTries(1000))
	if mutex.LockContext(ctx) != nil {
		return nil, nil
	}
	h.Granted = now()
	h.Until = h.Granted + time.Until(mutex.Until())
	h.mutex = mutex
	return h, nil
}

func (f *redsyncFleet) keep(h *hold, until instant) error {
	<-time.After(min(until, h.Until) - now())
	return nil
}

func (f *redsyncFleet) unlock(h *hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTTL)
	defer cancel()
	_, _ = h.mutex.UnlockContext(ctx) // keys that it leaves expire
	return nil
}
