package locktable

import (
	"cmp"
	"errors"
	"iter"
	"slices"

	"github.com/redlockd/redlockd/redlock"
)

// Queue holds, for each name, the holders and the waiters of this host in the order of
// arrival. A waiter is ready when nothing before it conflicts with it. So the ready ones are one
// writer, or all readers before the first writer, or as many as there are slots. Nobody overtakes:
// a reader stays behind a writer that waits. A request for several names joins the queues of
// all of them at the same moment, so two such requests cannot wait for each other.
type Queue struct {
	names        map[string]*nameQueue
	spare        *nameQueue             // empty, for the next name; nil: there is none
	waiters      nameQueue              // waiters without a lease, of all names
	lastNumber   uint64                 // of a Waiter
	participants map[Owner]*participant // for the deadlock search
	searches     int
}

// New makes an empty queue.
func New() *Queue {
	return &Queue{names: map[string]*nameQueue{}, participants: map[Owner]*participant{}}
}

// Join appends w to the queues of its names. It is ready at once if nothing before it
// conflicts. The error matches ErrDeadlock if w would wait for its own owner through
// others; w is not in the queue then.
func (q *Queue) Join(w *Waiter) error {
	q.number(w)
	w.isReady = q.firstBlocker(w) == nil
	if w.isBlocked() {
		if err := q.checkDeadlock(w); err != nil {
			return err
		}
	}
	if !w.isReady {
		w.ready = make(chan struct{})
	}
	if !w.isReady && w.mode().Exclusive() {
		w.nextInLine = make(chan struct{})
	}
	q.append(w)
	q.waiters.append(w)
	q.notifyNextInLine(w.Names)
	return nil
}

func (q *Queue) number(w *Waiter) {
	q.lastNumber++
	w.number = q.lastNumber
}

// append puts w, which has a number, at the end of the queues of its names.
func (q *Queue) append(w *Waiter) {
	for _, name := range w.Names {
		queue := q.names[name]
		if queue == nil {
			if queue, q.spare = q.spare, nil; queue == nil {
				queue = &nameQueue{}
			}
			q.names[name] = queue
		}
		queue.append(w)
	}
}

// Leave removes w and makes ready the waiters that it alone blocked, which continue its
// streak. failure is how the last attempt of w failed on the nodes, nil if it did not: the
// next waiters need not find that out again. (A waiter that was never ready made no attempt.)
func (q *Queue) Leave(w *Waiter, failure error) {
	q.removeParticipant(w)
	q.waiters.remove(w)
	for _, name := range w.Names {
		queue := q.names[name]
		if queue == nil {
			continue
		}
		if queue.remove(w); len(queue.entries) == 0 {
			delete(q.names, name)
			q.spare = queue
		}
	}
	visited := newVisited(w.Names)
	for _, name := range w.Names {
	waiters:
		for next := range q.names[name].all() {
			if next.isReady {
				continue
			}
			if w.isReady {
				next.failure = failure
			}
			switch {
			case visited.first(next) && q.makeReadyIfFree(next):
				next.streak = w.streak
			case !next.mode().Shared:
				break waiters // nobody overtakes it
			}
		}
	}
	q.notifyNextInLine(w.Names)
}

// Downgrade records that w, which held its lock exclusively, shares it, and makes ready the
// readers that it alone blocked.
func (q *Queue) Downgrade(w *Waiter) {
	w.grant = isShared
	for _, name := range w.Names {
		if queue := q.names[name]; queue != nil && queue.firstUnshared == w {
			queue.firstUnshared = queue.firstUnsharedFrom(0)
		}
	}
	visited := newVisited(w.Names)
	for _, name := range w.Names {
		for next := range q.names[name].all() {
			if !next.isReady && !(visited.first(next) && q.makeReadyIfFree(next)) && !next.mode().Shared {
				break // nobody overtakes it
			}
		}
	}
	q.notifyNextInLine(w.Names)
}

// visited has the waiters that were visited, so that one in the queues of several names is visited
// once. It is nil if there is only one name.
type visited map[*Waiter]bool

func newVisited(names []string) visited {
	if len(names) == 1 {
		return nil
	}
	return visited{}
}

// first marks w as visited, and returns false if it already was.
func (v visited) first(w *Waiter) bool {
	if v == nil {
		return true
	}
	before := v[w]
	v[w] = true
	return !before
}

func (q *Queue) makeReadyIfFree(w *Waiter) bool {
	if q.firstBlocker(w) != nil {
		return false
	}
	w.isReady = true
	close(w.ready)
	return true
}

// firstBlocker returns the first waiter or holder that w waits for.
func (q *Queue) firstBlocker(w *Waiter) *Waiter {
	first, _ := q.firstBlockerAndName(w)
	return first
}

// firstBlockerAndName returns the first blocker of w, and the name that they have in common.
func (q *Queue) firstBlockerAndName(w *Waiter) (first *Waiter, name string) {
	for _, name := range w.Names {
		if first := w.firstBlocker(q.names[name]); first != nil {
			return first, name
		}
	}
	return nil, ""
}

// NoteFailure records how an attempt of w failed on the nodes. If another host held the
// lock, the streak of this host ends.
func (q *Queue) NoteFailure(w *Waiter, failure error) {
	if w.failure = failure; errors.Is(failure, redlock.ErrHeld) {
		w.streak = Streak{}
	}
}

// LastFailure returns how the last attempt of w, or of the one before it, failed on the nodes.
func (q *Queue) LastFailure(w *Waiter) error {
	return w.failure
}

// Granted records that w holds a lease. It stays in the queue until it leaves.
func (q *Queue) Granted(w *Waiter) {
	w.grant, w.failure = isGranted, nil
	q.waiters.remove(w)
	q.notifyNextInLine(w.Names)
}

// Restore adds w, which held a lease before a restart. isKept: see ChangeOwner.
func (q *Queue) Restore(w *Waiter, isKept bool) {
	w.isKept, w.grant, w.isReady = isKept, isGranted, true
	q.number(w)
	q.append(w)
}

// ChangeOwner records the current owner of a lease that was resumed, so that its waiters wait for
// that owner. isKept means that nobody holds the lease any more, and that it ends by itself (min=).
func (q *Queue) ChangeOwner(w *Waiter, owner Owner, isKept bool) {
	waitedFor := w.participant != nil
	q.removeParticipant(w)
	w.Owner, w.isKept = owner, isKept
	if waitedFor {
		q.addParticipant(w)
	}
}

// Len returns the number of names that are held or waited for.
func (q *Queue) Len() int {
	return len(q.names)
}

// Waiting lists the waiters without a lease, in the order of arrival.
func (q *Queue) Waiting() []*Waiter {
	return slices.Collect(q.waiters.all())
}

// FirstWaiting returns the first waiter without a lease for a name; nil: there is none.
func (q *Queue) FirstWaiting(name string) *Waiter {
	for w := range q.names[name].all() {
		if !w.isGranted() {
			return w
		}
	}
	return nil
}

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
	for len(q.entries) > 0 && q.entries[len(q.entries)-1].waiter == nil {
		q.entries = q.entries[:len(q.entries)-1]
		q.removed--
	}
	for len(q.entries) > 0 && q.entries[0].waiter == nil {
		q.entries = q.entries[1:]
		q.removed--
	}
	if q.removed > len(q.entries)/2 { // so the mean cost of a remove is constant
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

// An exclusive waiter waits in the daemon for the readers of this host, and sends nothing to
// the nodes meanwhile. As soon as only holders block it, the daemon enters it into
// the nodes' wait queues, so that readers of other hosts do not overtake it. Earlier, the nodes would also refuse readers of
// this host that are before it.

// notifyNextInLine closes nextInLine of the first waiter of each name if it is next in line now.
func (q *Queue) notifyNextInLine(names []string) {
	visited := newVisited(names)
	for _, name := range names {
		for w := range q.names[name].all() {
			if w.isReady {
				continue
			}
			if w.nextInLine != nil && !isClosed(w.nextInLine) && visited.first(w) && q.isNextInLine(w) {
				close(w.nextInLine)
			}
			break
		}
	}
}

// isNextInLine reports whether all blockers of w hold their locks, and at least one of them shares
// its lock.
func (q *Queue) isNextInLine(w *Waiter) bool {
	shared := false
	for _, name := range w.Names {
		for ahead := range w.blockers(q.names[name]) {
			if !ahead.isGranted() {
				return false
			}
			shared = shared || ahead.mode().Shared
		}
	}
	return shared
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
