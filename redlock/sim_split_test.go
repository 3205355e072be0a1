package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Two hosts reach now all nodes and now some, and one of them now this Redis and now that
// under a node's name: never do two hold a lock, and fencing tokens grow. Guards
// lane.compare, lane.tellWords and lane.isKnown.
func TestSearchTwoUnderOneName(t *testing.T) {
	for seed := range uint64(budget() / 25) {
		here, there := &reach{}, &reach{}
		admittedTest(t, 3, func(t *testing.T, f *fleet) {
			there.twin = redlocktest.NewSim("a")
			defer there.twin.Close()
			other := f.another(withQuarantine, there.through)
			defer other.Close()
			c := &crowd{TB: t, grow: true}
			ctx, over := context.WithTimeout(t.Context(), 2*time.Minute)
			defer over()
			var all sync.WaitGroup
			for _, q := range []*redlock.Quorum{f.q, other} {
				all.Go(func() { c.again(ctx, q, redlock.Request{Name: "x", TTL: longest, Wait: redlock.Forever, Keep: true}) })
			}
			f.strays(ctx, rand.New(rand.NewPCG(seed, 0)), here, there)
			all.Wait()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}, here.through)
	}
}

// reach is which nodes a host reaches: not that one which is away (1 is the first; 0:
// none is), and instead of the first one its twin, where it goes astray.
type reach struct {
	away   atomic.Int32
	astray atomic.Bool
	twin   *redlocktest.Sim
}

// through has a host reach its nodes so.
func (r *reach) through(o *redlock.Options) {
	for i := range o.Nodes {
		dial := o.Nodes[i].Dial
		o.Nodes[i].Listen = nil
		o.Nodes[i].Dial = func(ctx context.Context) (redlock.Conn, error) {
			switch {
			case r.away.Load() == int32(i+1):
				return nil, syscall.EHOSTUNREACH
			case i == 0 && r.astray.Load():
				return r.twin.Node().Dial(ctx)
			}
			return dial(ctx)
		}
	}
}

// strays has what two hosts reach change until ctx is done.
func (f *fleet) strays(ctx context.Context, random *rand.Rand, here, there *reach) {
	for ctx.Err() == nil {
		switch random.IntN(3) {
		case 0:
			there.astray.Store(!there.astray.Load())
		case 1:
			here.away.Store(int32(random.IntN(4)))
		default:
			there.away.Store(int32(random.IntN(4)))
		}
		there.twin.Cut()
		every(f.sims, (*redlocktest.Sim).Cut)
		time.Sleep(time.Duration(random.IntN(4000)) * ms)
	}
}

// again takes a lock and gives it back until ctx is done. It stays in, extended, as long
// as it may.
func (c *crowd) again(ctx context.Context, q *redlock.Quorum, r redlock.Request) {
	for {
		var once sync.Once
		var l *redlock.Lease
		left := make(chan struct{})
		r.OnLost = func(*redlock.Lease) { once.Do(func() { close(left) }) }
		l, err := q.Acquire(ctx, r)
		if err != nil {
			return
		}
		c.enter(l, 1)
		select {
		case <-left:
		case <-time.After(2 * longest):
		}
		c.enter(l, -1)
		l.BeginRelease()
	}
}
