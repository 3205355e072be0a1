package redlock

import (
	"container/heap"
	"slices"
	"time"
)

// agenda is the leases that are in no ballot: those whose time has not come, by when
// it does; and those whose time has come, by when they are lost. Where more are due
// than the nodes can bear at once, those come first that cannot wait: who holds for a
// second is not behind another's ten thousand leases of half a minute.
type agenda struct {
	waiting leaseHeap // by due
	due     leaseHeap // by lossAt
}

func newAgenda() agenda { return agenda{due: leaseHeap{byLoss: true}} }

// all are the leases, in no order.
func (a *agenda) all() []*Lease { return slices.Concat(a.waiting.leases, a.due.leases) }

// put notes when the lease is to be looked after, and when it is lost otherwise. It
// tells whether it is the first of those that wait now.
func (a *agenda) put(l *Lease, due, lossAt time.Duration) (first bool) {
	a.remove(l)
	l.due, l.lossAt = due, lossAt
	heap.Push(&a.waiting, l)
	return a.waiting.leases[0] == l
}

func (a *agenda) remove(l *Lease) {
	if l.in != nil {
		heap.Remove(l.in, l.index)
	}
}

// come has those be due that are by now: many at a time, but not more, for that takes a
// while, and is asked for again soon.
func (a *agenda) come(now time.Duration) {
	for range comeAtOnce {
		if a.waiting.Len() == 0 || a.waiting.leases[0].due > now {
			return
		}
		heap.Push(&a.due, heap.Pop(&a.waiting))
	}
}

const comeAtOnce = 8 * batchSize

// pop is the lease that is due and lost first; nil: none is due.
func (a *agenda) pop() *Lease {
	if a.due.Len() == 0 {
		return nil
	}
	return heap.Pop(&a.due).(*Lease)
}

// next is how long after now the next one is due, idle where there is none.
func (a *agenda) next(now time.Duration) time.Duration {
	if a.waiting.Len() == 0 {
		return idle
	}
	return max(a.waiting.leases[0].due-now, 0)
}

// leaseHeap orders leases (container/heap).
type leaseHeap struct {
	leases []*Lease
	byLoss bool // by lossAt; else by due
}

func (h *leaseHeap) Len() int { return len(h.leases) }

func (h *leaseHeap) Less(i, j int) bool {
	if h.byLoss {
		return h.leases[i].lossAt < h.leases[j].lossAt
	}
	return h.leases[i].due < h.leases[j].due
}

func (h *leaseHeap) Swap(i, j int) {
	h.leases[i], h.leases[j] = h.leases[j], h.leases[i]
	h.leases[i].index, h.leases[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.in, l.index = h, len(h.leases)
	h.leases = append(h.leases, l)
}

func (h *leaseHeap) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last] = nil
	h.leases = h.leases[:last]
	l.in = nil
	return l
}
