package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/client"
)

// part is what workers do at the same time.
type part struct {
	name    string
	workers int
	rows    []string // what is measured in it
	step    func(ctx context.Context, worker int, m *meter) error
}

// The measurements of a part: rows is as long as the longest has.
type meter [2]histogram

func (b *bench) parts() []part {
	return []part{
		{"ping", 1, []string{"ping"}, b.ping},
		{"lock and unlock", 1, []string{"lock", "unlock"}, b.lockAndUnlock},
		{"throughput", b.workers, []string{"throughput"}, b.pair},
		{"hand-over", b.workers, []string{"hand-over"}, b.handOver()},
	}
}

func (b *bench) ping(ctx context.Context, _ int, m *meter) error {
	return m[0].time(func() error { return b.c.Ping(ctx) })
}

func (b *bench) lockAndUnlock(ctx context.Context, _ int, m *meter) error {
	var lease *client.Lease
	err := m[0].time(func() (err error) {
		lease, err = b.c.Lock(ctx, b.prefix+"free")
		return err
	})
	if err != nil {
		return err
	}
	return m[1].time(func() error { return unlock(ctx, lease) })
}

func (b *bench) pair(ctx context.Context, worker int, m *meter) error {
	return m[0].time(func() error {
		lease, err := b.c.Lock(ctx, b.prefix+strconv.Itoa(worker))
		if err != nil {
			return err
		}
		return unlock(ctx, lease)
	})
}

// handOver is a step in which all want the same lock.
func (b *bench) handOver() func(context.Context, int, *meter) error {
	var unlocked atomic.Pointer[time.Time] // when the last holder began to give it back
	return func(ctx context.Context, _ int, m *meter) error {
		lease, err := b.c.Lock(ctx, b.prefix+"wanted")
		if err != nil {
			return err
		}
		if before := unlocked.Load(); before != nil { // whoever stored it is the holder before
			m[0].add(time.Since(*before))
		}
		now := time.Now()
		unlocked.Store(&now)
		return unlock(ctx, lease)
	}
}

// unlock waits for its answer also where the part is over: nothing is left.
func unlock(ctx context.Context, lease *client.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	return lease.Unlock(ctx)
}
