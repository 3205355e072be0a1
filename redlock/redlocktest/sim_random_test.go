package redlocktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// TestSimRandomFaults runs clients with random faults. The clients received as many replies as the
// node counted, and all of them end.
func TestSimRandomFaults(t *testing.T) {
	var all Counts
	for seed := range uint64(20) {
		simTest(t, func(t *testing.T, sim *Sim) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			random := rand.New(rand.NewPCG(seed, 1))
			sim.SetDelay(jitter(seed))
			var answered atomic.Int64
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() { keepSetting(ctx, sim, fmt.Sprint(i), &answered) })
			}
			for ctx.Err() == nil {
				fault(sim, random)
				time.Sleep(time.Duration(random.IntN(int(50 * ms))))
			}
			wg.Wait()
			sim.Close()
			counts := sim.Counts()
			want(t, fmt.Sprintf("seed %d: groups that were answered", seed), int64(counts.Groups-counts.Unanswered), answered.Load())
			all.Groups += counts.Groups
			all.Lost += counts.Lost
			all.Unanswered += counts.Unanswered
		})
	}
	if all.Lost < 20 || all.Unanswered < 20 || all.Groups < 20*all.Unanswered {
		t.Errorf("%+v: want more groups with faults", all)
	}
}

// jitter returns random delays, so that events happen at different instants.
func jitter(seed uint64) func() (time.Duration, time.Duration) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 2))
	return func() (time.Duration, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.IntN(int(3 * ms))), time.Duration(random.IntN(int(3 * ms)))
	}
}

func keepSetting(ctx context.Context, sim *Sim, key string, answered *atomic.Int64) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 20*ms)
		if conn, err := sim.Node().Dial(attempt); err == nil {
			for setTwice(ctx, conn, key) {
				answered.Add(1)
			}
			conn.Close()
		} else {
			<-attempt.Done()
		}
		cancel()
	}
}

func setTwice(ctx context.Context, conn redlock.Conn, key string) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*ms)
	defer cancel()
	group := []redlock.Command{{"SET", key, "v", "PX", "100"}, {"GET", key}}
	return conn.Do(ctx, group, make([]redlock.Reply, len(group))) == nil
}

func fault(sim *Sim, random *rand.Rand) {
	faults := []func(){
		sim.Down, sim.Up, sim.Up, sim.Hang, sim.Resume, sim.Resume, sim.Flush, sim.Cut, sim.Restart, sim.Restart,
		func() { sim.Crash(true) },
		func() { sim.CutLate(30 * ms) },
		func() { sim.DropReplies(1) },
		func() { sim.DropRequests(1) },
	}
	faults[random.IntN(len(faults))]()
}
