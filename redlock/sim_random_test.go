package redlock_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// storm has three hosts that want two locks from five nodes, while networks, processes and clocks
// fail at random. No node loses its keys.
type storm struct {
	*fleet
	grants, losses atomic.Int32

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	holder map[string]*redlock.Lease // the last grant, if it was not released
}

// There is at most one holder before its stated deadline. When all nodes work again, no key of a
// released lock is left.
func TestStorm(t *testing.T) {
	seeds, _ := thinned(6, 0, 6)
	var grants, losses int32
	for seed := 0; seed < seeds || grants < int32(10*seeds) || losses == 0; seed++ { // a storm may have few grants, or no loss
		if seed == 10*seeds {
			t.Fatalf("%d grants and %d losses in %d storms, want at least %d grants, and a loss", grants, losses, seed, 10*seeds)
		}
		simTest(t, 5, func(t *testing.T, f *fleet) {
			s := &storm{fleet: f, random: rand.New(rand.NewPCG(uint64(seed), 3)), holder: map[string]*redlock.Lease{}}
			s.run()
			s.calm()
			grants, losses = grants+s.grants.Load(), losses+s.losses.Load()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// below returns a random duration below d.
func (s *storm) below(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.Int64N(int64(d)))
}

func (s *storm) run() {
	for i, sim := range s.sims {
		sim.SetClockRate(1 + float64(i-2)/1000) // the drift allowance is 1 %
		sim.SetDelay(func() (time.Duration, time.Duration) { return s.below(8 * ms), s.below(8 * ms) })
	}
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, q := range []*redlock.Quorum{s.q, s.another(), s.another()} {
		s.Cleanup(q.Close)
		for i := range 4 {
			all.Go(func() { s.work(ctx, q, name("x%d", i%2)) })
		}
	}
	for ctx.Err() == nil {
		s.fault()
		time.Sleep(s.below(150 * ms))
	}
	all.Wait()
}

func (s *storm) fault() {
	sim := s.sims[s.below(5)]
	faults := []func(){
		sim.Hang, sim.Resume, sim.Resume, sim.Down, sim.Up, sim.Up, sim.Cut,
		func() { sim.CutLate(30 * ms) },
		func() { sim.DropReplies(1) },
		func() { sim.DropRequests(1) },
		func() { sim.Crash(true); sim.Restart() }, // its append-only file has every write
		func() { sim.Do("SCRIPT", "FLUSH") },
		func() { // all nodes but one, so some leases are lost
			every(s.sims[1:], hang)
			time.Sleep(time.Second)
			every(s.sims, resume)
		},
	}
	faults[s.below(time.Duration(len(faults)))]()
}

// work repeatedly acquires a lock, holds it for a while and releases it.
func (s *storm) work(ctx context.Context, q *redlock.Quorum, name string) {
	for ctx.Err() == nil {
		ttl := time.Second
		if s.below(2) == 0 {
			ttl = 30 * time.Second // no key of it expires during the test
		}
		patience, cancel := context.WithTimeout(ctx, s.below(2*time.Second))
		l, err := q.Acquire(patience, redlock.Request{Name: name, TTL: ttl, Wait: redlock.Forever, Keep: true})
		cancel()
		if err != nil {
			time.Sleep(s.below(50 * ms))
			continue
		}
		s.granted(l)
		select {
		case <-l.Lost():
			s.losses.Add(1)
		case <-time.After(s.below(1500 * ms)):
			s.release(l)
		}
	}
}

// granted checks that the previous holder released the lock or is past its deadline.
func (s *storm) granted(l *redlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants.Add(1)
	if before := s.holder[l.Name()]; before != nil && before.Validity() > 0 {
		s.Errorf("%s was granted %v before the deadline of another holder", l.Name(), before.Validity())
	}
	s.holder[l.Name()] = l
}

// release records the release before its first byte is sent.
func (s *storm) release(l *redlock.Lease) {
	s.mu.Lock()
	if s.holder[l.Name()] == l {
		delete(s.holder, l.Name())
	}
	s.mu.Unlock()
	l.Release(s.Context()) // the result does not matter: see calm
}

// calm makes all nodes work again. After several failures a host connects within 5 s (maxPause of package
// node) and sends its releases. Then keys of lost leases are left for at most a second. If the
// message was lost that a waiter is gone, its entry stays on that node until the queue's key ends,
// after a minute (QUEUE_TTL in queue.lua).
func (s *storm) calm() {
	every(s.sims, func(sim *redlocktest.Sim) {
		sim.SetDelay(nil)
		sim.DropReplies(0)
		sim.DropRequests(0)
		sim.Up()
		sim.Resume()
	})
	time.Sleep(8 * time.Second)
	for _, key := range s.keys() {
		if !strings.HasSuffix(key, "\x00q") && !strings.HasSuffix(key, "\x00t") && !strings.HasSuffix(key, "\x00p") {
			s.Errorf("after the storm: key %q is left", key)
		}
	}
	time.Sleep(time.Minute)
	s.wantNoKeys("a minute after the storm")
}
