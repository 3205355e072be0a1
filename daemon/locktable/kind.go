package locktable

import (
	"iter"
	"slices"
)

// Kind is the mode of a lock. The zero Kind is exclusive.
type Kind struct {
	Shared bool  // readers hold the lock together
	Slots  int16 // so many clients hold a slot each; 0: no slots
}

// Exclusive reports whether the holder has the lock alone.
func (k Kind) Exclusive() bool { return k == Kind{} }

// Overlap reports whether two waiters have a name in common.
func Overlap(a, b *Waiter) bool {
	return slices.ContainsFunc(a.Names, func(name string) bool { return slices.Contains(b.Names, name) })
}

// blockers yields the waiters before w in a queue that it waits for, in order: all that conflict,
// and if all slots are taken, all that hold or want one. A waiter that is not in the queue is behind
// all others.
func (w *Waiter) blockers(queue *nameQueue) iter.Seq[*Waiter] {
	return func(yield func(*Waiter) bool) {
		full := w.slotsTaken(queue)
		for ahead := range queue.all() {
			if ahead == w || (full || w.conflicts(ahead)) && !yield(ahead) {
				return
			}
		}
	}
}

// conflicts reports whether the kinds of two waiters cannot be held together.
func (w *Waiter) conflicts(other *Waiter) bool {
	return other.mode() != w.mode() || w.mode().Exclusive()
}

// firstBlocker returns the first of the blockers, or nil.
func (w *Waiter) firstBlocker(queue *nameQueue) *Waiter {
	if w.mode().Shared { // thousands of readers may be before it
		if queue != nil && queue.firstUnshared != nil && queue.firstUnshared.number < w.number {
			return queue.firstUnshared
		}
		return nil
	}
	for first := range w.blockers(queue) {
		return first
	}
	return nil
}

// slotsTaken reports whether the waiters before w hold or want all slots.
func (w *Waiter) slotsTaken(queue *nameQueue) bool {
	return w.mode().Slots > 0 && w.slotsAhead(queue) >= int(w.mode().Slots)
}

// slotsAhead counts the waiters before w that hold or want a slot: they are served first.
func (w *Waiter) slotsAhead(queue *nameQueue) (n int) {
	for ahead := range queue.all() {
		if ahead == w {
			break
		}
		if ahead.mode() == w.mode() {
			n++
		}
	}
	return n
}

// covers reports whether behind waits for everything that ahead waits for.
func covers(behind, ahead *Waiter) bool {
	if !behind.mode().Exclusive() && behind.mode() != ahead.mode() {
		return false // a reader does not wait for other readers
	}
	for _, name := range ahead.Names {
		if !slices.Contains(behind.Names, name) {
			return false
		}
	}
	return true
}
