package redlock

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// keeper extends all leases of a Quorum: one heap of due times, one goroutine,
// and what is due together goes out in groups of one call a node.
type keeper struct {
	q      *Quorum
	clock  func() time.Duration
	wake   chan struct{} // of capacity 1: the first due time is another
	closed atomic.Bool   // nothing is extended and no loss is told any more

	mu   sync.Mutex // guards the heap and what of a lease belongs to it
	heap leaseHeap
}

const (
	// extendShare: a lease is extended when a third of its ttl is over, so that
	// most of it is left for tries that fail.
	extendShare = 3
	batchSize   = maxOps
	// together is how much earlier than due a lease is extended for company.
	together = 5 * time.Millisecond
	// Tries to extend begin again after about retryExtend, and the pause
	// doubles up to a retryShare of the ttl.
	retryExtend = 40 * time.Millisecond
	retryShare  = 10
)

func newKeeper(q *Quorum) *keeper {
	return &keeper{q: q, clock: q.clock, wake: make(chan struct{}, 1)}
}

// run extends until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer k.closed.Store(true)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		timer.Reset(k.extendDue())
	}
}

// extendDue sends all extensions that are due, and returns the time until the
// next one is.
func (k *keeper) extendDue() time.Duration {
	for {
		now := k.clock()
		batch, next := k.popDue(now)
		if len(batch) == 0 {
			return next
		}
		k.send(batch, now)
	}
}

const idle = time.Hour // nothing is due; a new lease wakes the keeper

// popDue takes up to batchSize leases that are due, or says when one will be.
func (k *keeper) popDue(now time.Duration) (batch []*Lease, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.heap) > 0 && k.heap[0].due <= now+together && len(batch) < batchSize {
		batch = append(batch, heap.Pop(&k.heap).(*Lease))
	}
	if len(k.heap) == 0 {
		return batch, idle
	}
	return batch, max(k.heap[0].due-now-together, 0) + time.Millisecond
}

// send puts one extension of many leases to the nodes.
func (k *keeper) send(batch []*Lease, now time.Duration) *extension {
	e := newExtension(k, batch, now)
	e.ask()
	return e
}

// keep has the lease extended at due.
func (k *keeper) keep(l *Lease, due time.Duration) {
	k.mu.Lock()
	first := k.place(l, due)
	k.mu.Unlock()
	if !first {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// place puts the lease into the heap, or moves it there, and tells whether it
// is the first now. The caller holds mu.
func (k *keeper) place(l *Lease, due time.Duration) (first bool) {
	if l.forgotten {
		return false
	}
	l.due = due
	if l.index >= 0 {
		heap.Fix(&k.heap, l.index)
	} else {
		heap.Push(&k.heap, l)
	}
	return k.heap[0] == l
}

// forget has the lease extended no more.
func (k *keeper) forget(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.forgotten = true
	if l.index >= 0 {
		heap.Remove(&k.heap, l.index)
	}
}

// confirmed: a quorum extended the lease, asked at start.
func (k *keeper) confirmed(l *Lease, start, ttl time.Duration) bool {
	if !l.extended(start+ttl-drift(ttl), ttl, k.clock()) {
		return false
	}
	if l.kept && !l.atEnd() {
		l.tries.Store(0)
		k.keep(l, start+ttl/extendShare)
	}
	return true
}

// retry: a quorum could not be had. The lease is as valid as before; it is
// tried again soon, at random, until LOST is said.
func (k *keeper) retry(l *Lease, ttl time.Duration) {
	if !l.kept {
		return
	}
	doubled := retryExtend << min(l.tries.Add(1)-1, 10)
	limit := min(doubled, max(ttl/retryShare, retryExtend))
	k.keep(l, k.clock()+limit/2+rand.N(limit/2))
}

// leaseHeap orders leases by due time (container/heap).
type leaseHeap []*Lease

const notInHeap = -1

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due < h[j].due }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = notInHeap
	return l
}
