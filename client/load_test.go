package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The daemon restarts while locks are held and awaited. No lock is held twice or lost, and nothing
// is left in the daemon.
func TestRestartsUnderLoad(t *testing.T) {
	m := startModel(t)
	c := m.dial()
	var done atomic.Int32
	underLoad(t, 20, 40, func(name string, inside func()) {
		err := c.Do(t.Context(), name, func(ctx context.Context, l *Lease) error {
			inside()
			if done.Add(1)%100 == 0 {
				m.restart()
				return l.Check(ctx) // answered once it is resumed
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	m.mustBecomeEmpty(c)
	nothingLeft(t, c)
	if c.Reconnects() == 0 || c.Resumed() == 0 {
		t.Errorf("%d reconnects, %d leases resumed, want some", c.Reconnects(), c.Resumed())
	}
}

// The daemon restarts, keeps the connection and loses answers, while callers abandon locks.
func TestBackUnderLoad(t *testing.T) {
	m := startModel(t)
	m.backs = 20
	c := m.dial()
	underLoad(t, 20, 40, func(name string, inside func()) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(20*time.Millisecond))))
		defer cancel()
		l, err := c.Lock(ctx, name)
		if err != nil {
			if !errors.Is(err, ErrHeld) {
				want(t, "lock", err, context.DeadlineExceeded)
			}
			return
		}
		inside()
		if err := l.Unlock(ctx); err != nil {
			want(t, "unlock", err, context.DeadlineExceeded)
		}
	})
	m.mustBecomeEmpty(c)
	if n := c.Reconnects(); n > 0 {
		t.Errorf("%d connections were made", n)
	}
}

// underLoad runs work on that many goroutines, and checks that no two hold one name at the same
// time.
func underLoad(t *testing.T, workers, rounds int, work func(name string, inside func())) {
	var holders [4]atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				n := (w + i) % len(holders)
				work(strconv.Itoa(n), func() {
					if in := holders[n].Add(1); in != 1 {
						t.Errorf("%d hold lock %d", in, n)
					}
					runtime.Gosched()
					holders[n].Add(-1)
				})
			}
		})
	}
	wg.Wait()
}
