package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// keeper extends one lease of a library that leaves this to its user.
type keeper struct {
	extender
	deadline atomic.Int64 // Unix ns; read by others
}

func newKeeper(e extender) *keeper {
	k := &keeper{extender: e}
	k.deadline.Store(e.until().UnixNano())
	return k
}

var errExpired = errors.New("it could not be extended in time")

func (k *keeper) over() error {
	if time.Now().UnixNano() > k.deadline.Load() {
		return errExpired
	}
	return nil
}

// run extends the lease every ttl/3 until ctx ends or the lease is lost. The
// first time comes early by chance, so that many keepers spread out.
func (k *keeper) run(ctx context.Context, stats *extensions) {
	const every = heldTTL / 3
	for next := rand.N(every); pause(ctx, next) == nil && k.over() == nil; {
		start := time.Now()
		if k.extend(ctx) != nil {
			next = retryDelay()
			continue
		}
		k.deadline.Store(k.until().UnixNano())
		stats.add(time.Since(start))
		next = every
	}
}

// extensions collects how long extensions took.
type extensions struct {
	mu        sync.Mutex // guards latencies
	latencies []time.Duration
}

func (e *extensions) add(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.latencies = append(e.latencies, d)
}

// take returns what was collected since it was last called, sorted.
func (e *extensions) take() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.latencies
	e.latencies = nil
	slices.Sort(taken)
	return taken
}
