package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// scenario is who locks what: workers that take a lock and give it back at once.
type scenario struct {
	part    string
	title   string
	workers int
	shared  bool // all of them want the same name
}

// slice is a short time in which one contender works.
type slice struct {
	scenario
	locker func(w int) locker
	mark   string        // in the name of every lock of this slice, and of no other
	length time.Duration // after it no pair is begun
	limit  time.Duration // after it relief is called, to get workers out of a stuck call
	relief func()
}

// pairs is what the workers of a slice did.
type pairs struct {
	latencies []time.Duration // of each pair, sorted
	elapsed   time.Duration   // until the last pair was over
	failed    int             // locks or unlocks that the contender answered with an error
	failure   error           // one of them
	clashes   int             // locks granted while somebody else had them
}

// stuckAfter is how long after relief workers may still be busy before the
// contender is given up.
const stuckAfter = 30 * time.Second

// run returns once all workers are done, which is soon after the slice's length
// unless calls take longer; an error if a worker never comes back or ctx ended.
func (s slice) run(ctx context.Context) (pairs, error) {
	ctx, cancel := context.WithTimeout(ctx, s.length+s.limit+stuckAfter)
	defer cancel()
	lockCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var over atomic.Bool
	defer time.AfterFunc(s.length, func() {
		over.Store(true)
		if s.shared {
			giveUp() // whoever waits for the others waits for the end
		}
	}).Stop()
	defer time.AfterFunc(s.length+s.limit, s.relief).Stop()

	crew := make([]worker, s.workers)
	var inUse atomic.Int32
	start := time.Now()
	var wg sync.WaitGroup
	for i := range crew {
		w := &crew[i]
		*w = worker{slice: &s, number: i, locker: s.locker(i), over: &over, inUse: &inUse}
		if !s.shared {
			w.inUse = new(atomic.Int32)
		}
		wg.Go(func() { w.run(ctx, lockCtx) })
	}
	if err := waitFor(ctx, &wg); err != nil {
		return pairs{}, err
	}
	return collect(crew, time.Since(start)), nil
}

// waitFor waits for wg, and at most for a while longer than ctx lasts.
func waitFor(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(10 * time.Second):
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("workers are stuck in lock or unlock")
	}
	return ctx.Err()
}

func collect(crew []worker, elapsed time.Duration) pairs {
	p := pairs{elapsed: elapsed}
	for i := range crew {
		w := &crew[i]
		p.latencies = append(p.latencies, w.latencies...)
		p.failed += w.failed
		p.clashes += w.clashes
		if p.failure == nil {
			p.failure = w.failure
		}
	}
	slices.Sort(p.latencies)
	return p
}

// worker takes and gives back locks, one after the other.
type worker struct {
	slice  *slice
	number int
	locker locker
	over   *atomic.Bool
	inUse  *atomic.Int32 // 1 while somebody holds the name that this worker takes

	latencies []time.Duration
	failed    int
	failure   error
	clashes   int
}

func (w *worker) run(ctx, lockCtx context.Context) {
	for n := 0; !w.over.Load() && ctx.Err() == nil; n++ {
		start := time.Now()
		if err := w.pair(ctx, lockCtx, w.name(n)); err != nil {
			if lockCtx.Err() == nil { // otherwise that is why it failed
				w.failed++
				w.failure = err
			}
			continue
		}
		w.latencies = append(w.latencies, time.Since(start))
	}
}

// name returns what to lock: a fresh name for each pair where names are
// distinct, so that a key that an earlier pair left behind is in nobody's way.
func (w *worker) name(n int) string {
	if w.slice.shared {
		return w.slice.mark
	}
	return w.slice.mark + ":" + strconv.Itoa(w.number) + ":" + strconv.Itoa(n)
}

func (w *worker) pair(ctx, lockCtx context.Context, name string) error {
	l, err := w.locker.lock(lockCtx, name, pairTTL)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	w.criticalSection()
	if err := l.Unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

// criticalSection is what the lock protects: being alone in here.
func (w *worker) criticalSection() {
	if !w.inUse.CompareAndSwap(0, 1) {
		w.clashes++
		return
	}
	w.inUse.Store(0)
}
