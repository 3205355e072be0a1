package locktable

import (
	"cmp"
	"iter"
	"slices"
)

// nameQueue holds the waiters and holders of one name. One user can have thousands of them in a
// hundred queues each, and all clients wait for the mutex that guards the Queue. So no operation may be
// quadratic in their number. A nil nameQueue is empty.
type nameQueue struct {
	entries       []entry // by number, in ascending order; neither the first nor the last one is removed
	removed       int     // of the entries
	firstUnshared *Waiter // the first that is not a reader; nil: there is none
}

// entry is a waiter in one of its queues.
type entry struct {
	number uint64
	waiter *Waiter // nil: removed
}

func (q *nameQueue) append(w *Waiter) {
	q.entries = append(q.entries, entry{w.number, w})
	if q.firstUnshared == nil && !w.mode().Shared {
		q.firstUnshared = w
	}
}

// noteShared records that w is a reader now.
func (q *nameQueue) noteShared(w *Waiter) {
	if q != nil && q.firstUnshared == w {
		q.firstUnshared = q.firstUnsharedFrom(0)
	}
}

// remove has no effect if w is not in the queue.
func (q *nameQueue) remove(w *Waiter) {
	i, found := slices.BinarySearchFunc(q.entries, w.number, byNumber)
	if !found || q.entries[i].waiter != w {
		return
	}
	q.entries[i].waiter = nil
	q.removed++
	if q.firstUnshared == w {
		q.firstUnshared = q.firstUnsharedFrom(i)
	}
	q.trim()
}

// trim drops removed entries at both ends. It drops all of them when they are more than half of the
// entries, so the mean cost of a remove is constant.
func (q *nameQueue) trim() {
	for len(q.entries) > 0 && q.entries[len(q.entries)-1].waiter == nil {
		q.entries = q.entries[:len(q.entries)-1]
		q.removed--
	}
	for len(q.entries) > 0 && q.entries[0].waiter == nil {
		q.entries = q.entries[1:]
		q.removed--
	}
	if q.removed > len(q.entries)/2 {
		q.entries = slices.DeleteFunc(q.entries, func(e entry) bool { return e.waiter == nil })
		q.removed = 0
	}
}

// firstUnsharedFrom returns the first waiter from index i on that is not a reader, or nil.
func (q *nameQueue) firstUnsharedFrom(i int) *Waiter {
	for _, e := range q.entries[i:] {
		if e.waiter != nil && !e.waiter.mode().Shared {
			return e.waiter
		}
	}
	return nil
}

func (q *nameQueue) isEmpty() bool { return q == nil || len(q.entries) == 0 }

// all yields the waiters in order.
func (q *nameQueue) all() iter.Seq[*Waiter] {
	return func(yield func(*Waiter) bool) {
		if q == nil {
			return
		}
		for _, e := range q.entries {
			if e.waiter != nil && !yield(e.waiter) {
				return
			}
		}
	}
}

// backward yields the waiters, the last one first.
func (q *nameQueue) backward() iter.Seq[*Waiter] {
	return func(yield func(*Waiter) bool) {
		if q == nil {
			return
		}
		for _, e := range slices.Backward(q.entries) {
			if e.waiter != nil && !yield(e.waiter) {
				return
			}
		}
	}
}

// next returns the first waiter at index i or later that is before another one, and its
// index; nil: there is none.
func (q *nameQueue) next(i int, before *Waiter) (int, *Waiter) {
	for q != nil && i < len(q.entries) && q.entries[i].number < before.number {
		if w := q.entries[i].waiter; w != nil {
			return i, w
		}
		i++
	}
	return i, nil
}

// following returns the waiter directly behind w, or nil.
func (q *nameQueue) following(w *Waiter) *Waiter {
	if q == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(q.entries, w.number, byNumber)
	if found {
		i++
	}
	for _, e := range q.entries[i:] {
		if e.waiter != nil {
			return e.waiter
		}
	}
	return nil
}

func byNumber(e entry, number uint64) int { return cmp.Compare(e.number, number) }

// firstTwo returns the first two waiters; nil if there are fewer.
func (q *nameQueue) firstTwo() (first, second *Waiter) {
	for w := range q.all() {
		if first != nil {
			return first, w
		}
		first = w
	}
	return first, nil
}
