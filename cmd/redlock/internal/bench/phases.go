package bench

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// phase is a step that workers repeat at the same time.
type phase struct {
	name    string
	workers int
	rows    []string // one for each measurement
	step    func(ctx context.Context, worker int, m *measurements) error
}

// measurements are the histograms of one worker, one for each row of its phase.
type measurements [2]histogram

func (b *Bench) phases() []phase {
	return []phase{
		{"ping", 1, []string{"ping"}, b.ping},
		{"lock and unlock", 1, []string{"lock", "unlock"}, b.lockAndUnlock},
		{"throughput", b.Workers, []string{"throughput"}, b.pair},
		{"hand-over", b.Workers, []string{"hand-over"}, b.handover()},
	}
}

func (b *Bench) ping(ctx context.Context, _ int, m *measurements) error {
	return m[0].time(func() error { return b.client.Ping(ctx) })
}

func (b *Bench) lockAndUnlock(ctx context.Context, _ int, m *measurements) error {
	var lease *client.Lease
	err := m[0].time(func() (err error) {
		lease, err = b.client.Lock(ctx, b.Prefix+"free")
		return err
	})
	if err != nil {
		return err
	}
	return m[1].time(func() error { return unlock(ctx, lease) })
}

func (b *Bench) pair(ctx context.Context, worker int, m *measurements) error {
	return m[0].time(func() error {
		lease, err := b.client.Lock(ctx, b.Prefix+strconv.Itoa(worker))
		if err != nil {
			return err
		}
		return unlock(ctx, lease)
	})
}

// handover returns a step in which all workers want the same lock.
func (b *Bench) handover() func(context.Context, int, *measurements) error {
	var unlocked atomic.Pointer[time.Time] // when the previous holder began to release it
	return func(ctx context.Context, _ int, m *measurements) error {
		lease, err := b.client.Lock(ctx, b.Prefix+"wanted")
		if err != nil {
			return err
		}
		if before := unlocked.Load(); before != nil { // stored by the previous holder
			m[0].add(time.Since(*before))
		}
		now := time.Now()
		unlocked.Store(&now)
		return unlock(ctx, lease)
	}
}

// unlock waits for the answer even if the phase has ended, so that no lock is left.
func unlock(ctx context.Context, lease *client.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), socket.AnswerTimeout)
	defer cancel()
	return lease.Unlock(ctx)
}
