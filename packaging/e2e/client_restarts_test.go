//go:build linux

package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
)

// The daemon is killed and started repeatedly, without a service manager. A Go program with leases
// and waiting goroutines notices nothing if the leases outlast the pause.
func TestGoClientUnderKills(t *testing.T) {
	t.Parallel()
	_, h, d := five(t)
	c, err := client.Dial(within(t), h.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	held := holdMany(t, c, 50)
	others := startContest(t, c, 10)
	for range rounds(5, 50) {
		resumed, grants := c.Resumed(), others.grants.Load()
		validity := shortest(held)
		killed := time.Now()
		d.kill()
		d = h.serve()
		waitFor(t, "the leases are resumed, and locks granted", func() bool {
			return c.Resumed() >= resumed+uint64(len(held)) && others.grants.Load() > grants+20
		})
		if pause := time.Since(killed); pause > validity {
			t.Fatalf("the pause of %v was longer than the validity of %v: leases may be lost", pause, validity)
		}
	}
	others.leave()
	for l, fence := range held {
		if err := l.Check(within(t)); err != nil || l.Context().Err() != nil || l.Fence() != fence {
			t.Errorf("%s: %v (%v), fencing token %d; want %d", l.Name(), err, context.Cause(l.Context()), l.Fence(), fence)
		}
		if err := l.Unlock(within(t)); err != nil {
			t.Error(err)
		}
	}
	t.Logf("measured: %d connections after the first, %d leases resumed, %d grants", c.Reconnects(), c.Resumed(), others.grants.Load())
}

// holdMany takes locks, and returns their fencing tokens.
func holdMany(t *testing.T, c *client.Client, n int) map[*client.Lease]uint64 {
	t.Helper()
	held := map[*client.Lease]uint64{}
	for i := range n {
		l, err := c.Lock(within(t), fmt.Sprint("held-", i), client.WithTTL(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		held[l] = l.Fence()
	}
	return held
}

func shortest(held map[*client.Lease]uint64) time.Duration {
	least := time.Hour
	for l := range held {
		least = min(least, l.Validity())
	}
	return least
}

// contest is a group of goroutines that want one lock.
type contest struct {
	t      *testing.T
	c      *client.Client
	grants atomic.Int64
	inside atomic.Int64
	fence  uint64 // of the last grant; the lock itself guards it
	over   chan struct{}
	end    sync.Once
	all    sync.WaitGroup
}

func startContest(t *testing.T, c *client.Client, n int) *contest {
	g := &contest{t: t, c: c, over: make(chan struct{})}
	t.Cleanup(g.leave)
	for range n {
		g.all.Go(g.contend)
	}
	return g
}

func (g *contest) contend() {
	for !isOver(g.over) {
		err := g.c.Do(g.t.Context(), "wanted", g.work, client.WithTTL(20*time.Second))
		if err != nil {
			if g.t.Context().Err() == nil {
				g.t.Error(err)
			}
			return
		}
	}
}

// work is done by one holder at a time, with growing fencing tokens.
func (g *contest) work(ctx context.Context, l *client.Lease) error {
	if n := g.inside.Add(1); n != 1 {
		g.t.Errorf("%d hold the lock", n)
	}
	defer g.inside.Add(-1)
	if l.Fence() <= g.fence {
		g.t.Errorf("fencing token %d, it was %d before", l.Fence(), g.fence)
	}
	g.fence = l.Fence()
	g.grants.Add(1)
	return ctx.Err()
}

func (g *contest) leave() {
	g.end.Do(func() { close(g.over) })
	awaitAll(g.t, 2*patience, &g.all, "the goroutines that want the lock to get it for the last time", func() string {
		return fmt.Sprintf("%d grants, %d hold it", g.grants.Load(), g.inside.Load())
	})
}

func isOver(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}
