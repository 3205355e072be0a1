package redlock

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
)

// keeper extends all leases of a Quorum. It has one queue and one goroutine (Quorum waits
// for it); leases that are due together are extended with one call per node.
type keeper struct {
	q      *Quorum
	clock  func() time.Duration
	rules  *rules
	start  time.Time     // ahead is how far the clock is before the time since then
	ahead  time.Duration // for the keeper's goroutine
	wake   chan struct{} // of capacity 1: the first due time is another
	closed atomic.Bool   // nothing is extended and no loss is told any more

	inFlight atomic.Int32  // batches that are not decided
	rounds   atomic.Uint64 // how often its loop came round

	mu     sync.Mutex // guards what follows, and the queue's fields of a lease; no other mutex is taken inside it
	queue  extensionQueue
	forced map[string]bool // tokens that were forced just now, of leases that were in a ballot
}

const (
	// extendShare: a lease is extended when a third of its ttl is over, so that
	// most of it is left for tries that fail.
	extendShare = 3
	batchSize   = node.MaxOps // keys
	// maxUnderWay bounds the batches that are put to the nodes at once. Where
	// thousands of leases are due together, they go out as fast as the nodes
	// answer, and no faster: what is due sooner can come before them then. So many
	// are two milliseconds of a node's time; fewer would not be extended as fast as
	// is needed by nodes that take long for each answer, however little it is.
	maxUnderWay = 16
	// together is how much earlier than due a lease is extended for company.
	earlyBy = 5 * time.Millisecond
	// Tries to extend begin again after about retryExtend, and the pause
	// doubles up to a retryShare of the ttl.
	retryExtend = 40 * time.Millisecond
	retryShare  = 10
)

func newKeeper(q *Quorum) *keeper {
	start := time.Now()
	return &keeper{q: q, clock: q.clock, rules: q.rules, start: start, ahead: q.clock(), wake: make(chan struct{}, 1), queue: newExtensionQueue()}
}

// run extends until ctx ends.
func (k *keeper) run(ctx context.Context) {
	defer k.closed.Store(true)
	suspension := time.NewTicker(suspensionCheck)
	defer suspension.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-suspension.C:
			k.noticeSuspension()
			continue
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		timer.Reset(k.extendDue())
		k.rounds.Add(1)
	}
}

// noticeSuspension runs the timers of all leases after the host was suspended: timers run
// on CLOCK_MONOTONIC, which stopped, and would report LOST too late. And it has the nodes
// be looked at, which would come too late as well: see admission.Fleet.LatestDeadline.
func (k *keeper) noticeSuspension() {
	ahead := k.clock() - time.Since(k.start)
	jumped := ahead-k.ahead > suspensionCheck/2
	if k.ahead = ahead; !jumped {
		return
	}
	for _, l := range k.q.lanes {
		l.LookSoon()
	}
	for _, l := range k.all() {
		l.onTimer()
	}
}

// age moves the deadlines of all leases back: this host's clock stopped, so they are older
// than they seem. Those that are over say LOST at once. (Those that it does not find, in a
// ballot or not granted yet, are aged when they are kept.)
func (k *keeper) age() {
	all := k.all()
	for _, l := range all {
		l.age(k.q.admission.TotalMissed())
	}
	if k.q.options.Aged != nil {
		k.q.options.Aged()
	}
	for _, l := range all {
		l.onTimer()
	}
}

// all are the leases that are in no ballot.
func (k *keeper) all() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.queue.all()
}

// extendDue does all that is due, and returns the time until something is.
func (k *keeper) extendDue() time.Duration {
	for k.inFlight.Load() < maxUnderWay {
		now := k.clock()
		due, next := k.popDue(now)
		if len(due) == 0 {
			return next
		}
		batch := slices.DeleteFunc(due, func(l *Lease) bool { return k.watchUnkept(l) })
		if len(batch) > 0 {
			k.send(batch, now)
		}
	}
	return idle // until a batch is decided
}

// watchUnkept: a lease that is not extended is lost when that is due, or
// is watched on.
func (k *keeper) watchUnkept(l *Lease) bool {
	if l.extendable() {
		return false
	}
	l.onTimer()
	k.schedule(l, max(l.lossDue(), k.clock()+idleRing)+earlyBy) // not sooner for company
	return true
}

const (
	idle     = time.Hour        // nothing is due; a new lease wakes the keeper
	idleRing = time.Millisecond // bounds how often a lease is rung
	// suspensionCheck is how often CLOCK_BOOTTIME is held against
	// CLOCK_MONOTONIC; a fifth of the shortest ttl would be 20 ms, but a host
	// is not suspended for as little.
	suspensionCheck = 100 * time.Millisecond
)

// popDue takes up to batchSize keys of leases that are due, those that are lost first
// before others, or says when one will be.
func (k *keeper) popDue(now time.Duration) (due []*Lease, next time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue.moveDue(now + earlyBy)
	for keys := 0; keys < batchSize; {
		l := k.queue.pop()
		if l == nil {
			break
		}
		due, keys = append(due, l), keys+l.width()
	}
	return due, min(k.queue.next(now+earlyBy)+time.Millisecond, idle)
}

// send puts one extension of many leases to the nodes.
func (k *keeper) send(batch []*Lease, now time.Duration) {
	e := newExtension(k, batch, now)
	e.decided = k.decided
	for _, l := range batch {
		l.noteAsked(now)
	}
	k.inFlight.Add(1)
	e.ask()
}

// decided makes room for the next batch.
func (k *keeper) decided() {
	k.inFlight.Add(-1)
	k.stir()
}

// stir has the keeper look at what is due.
func (k *keeper) stir() {
	select {
	case k.wake <- struct{}{}:
	default: // it is about to
	}
}

// watch has the lease extended at due, or lost when that is due if it is not
// to be extended: every held lease is in the queue, or in a ballot.
func (k *keeper) watch(l *Lease, due time.Duration) { k.schedule(l, k.dueOf(l, due)) }

// watchAgain is watch for a lease that was in a ballot, where who forces it away does not
// find it.
func (k *keeper) watchAgain(l *Lease, due time.Duration) {
	if k.watch(l, due); k.wasForced(l) {
		l.lose(LostForced)
	}
}

// dueOf is when the lease is to be looked after that is to be extended at due, if at
// all.
func (k *keeper) dueOf(l *Lease, due time.Duration) time.Duration {
	if !l.extendable() {
		return l.lossDue() + earlyBy
	}
	return due
}

// watchAll is watch for many leases: the keeper finds all of them when it wakes.
func (k *keeper) watchAll(leases []*Lease, due time.Duration) {
	dues, losses := make([]time.Duration, len(leases)), make([]time.Duration, len(leases))
	for i, l := range leases {
		dues[i], losses[i] = k.dueOf(l, due), l.lossDue()
	}
	k.mu.Lock()
	for i, l := range leases {
		k.scheduleLocked(l, dues[i], losses[i])
	}
	k.mu.Unlock()
	k.stir()
	for _, l := range leases {
		k.ageMissed(l)
	}
}

// schedule puts the lease into the queue for due.
func (k *keeper) schedule(l *Lease, due time.Duration) {
	lossAt := l.lossDue()
	k.mu.Lock()
	first := k.scheduleLocked(l, due, lossAt)
	k.mu.Unlock()
	if first {
		k.stir()
	}
	k.ageMissed(l)
}

// ageMissed ages a lease that was not to be found when the others were aged. Its timer
// reports LOST, even if that is due now: Acquire and Adopt return a lease before its loss
// is reported.
func (k *keeper) ageMissed(l *Lease) {
	if l.age(k.q.admission.TotalMissed()) {
		k.moved(l)
		l.rearm(k.clock())
	}
}

// scheduleLocked puts the lease into the queue, or moves it there, and reports whether it is the
// first now. The caller holds mu.
func (k *keeper) scheduleLocked(l *Lease, due, lossAt time.Duration) (first bool) {
	return !l.forgotten && k.queue.schedule(l, due, lossAt)
}

// forget has the lease extended no more: it is over.
func (k *keeper) forget(l *Lease) {
	k.remove(l)
	if l.onConfirmed != nil {
		l.onConfirmed()
	}
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.forgotten = true
	k.queue.remove(l)
}

// confirmed: a quorum extended the lease, asked at start, when this host's clock had
// missed so much; latest is as in admission.Fleet.LatestDeadline.
func (k *keeper) confirmed(l *Lease, start, missed, latest, ttl time.Duration, changes bool) {
	now := k.clock()
	left := l.Deadline() - now
	next := start + ttl/extendShare
	deadline := min(k.rules.start(start, now)+ttl-k.rules.drift(ttl), latest)
	if !l.extended(deadline, missed, ttl, next, now, changes) {
		l.onTimer() // too late: LOST is due, if it was not said
		return
	}
	l.tries.Store(0)
	k.moved(l)
	if k.q.options.Extended != nil && !changes {
		k.q.options.Extended(left, ttl)
	}
	if l.onConfirmed != nil {
		l.onConfirmed()
	}
	k.watchAgain(l, next)
}

// moved tells that a lease has another deadline.
func (k *keeper) moved(l *Lease) {
	if k.q.options.Moved != nil {
		k.q.options.Moved(l)
	}
}

// retry: a quorum could not be had. The lease is as valid as before; it is
// tried again soon, at random, until LOST is said.
func (k *keeper) retry(l *Lease, ttl time.Duration, cause error) {
	l.failed(cause)
	l.onTimer()
	doubled := retryExtend << min(l.tries.Add(1)-1, 10)
	limit := min(doubled, max(ttl/retryShare, retryExtend))
	k.watchAgain(l, k.clock()+limit/2+k.rules.Jitter(l.name(), limit/2))
}

// loseForced reports LOST for a lease of ours that was forced away: now, or where it is in a
// ballot, when that is over.
func (k *keeper) loseForced(token string) {
	if l := k.forceToken(token); l != nil {
		l.lose(LostForced)
	}
}

// forceToken returns the lease that has the token; nil: none, or it is in a ballot, for which
// that is noted. By the time that it is forgotten, each node has answered that ballot, or
// its connection is over.
func (k *keeper) forceToken(token string) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.queue.all()
	if at := slices.IndexFunc(all, func(l *Lease) bool { return l.token == token }); at >= 0 {
		return all[at]
	}
	if k.forced == nil {
		k.forced = map[string]bool{}
	}
	k.forced[token] = true
	time.AfterFunc(node.SilenceLimit(k.q.options.NodeTimeout), func() { k.forgetForced(token) })
	return nil
}

func (k *keeper) forgetForced(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.forced, token)
}

func (k *keeper) wasForced(l *Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.forced[l.token]
}

// extensionQueue has the leases that are in no ballot: those that are not due yet, ordered
// by when they are; and those that are due, ordered by when they are lost. If more are due
// than the nodes can handle at once, those with the least time left come first: a lease of a
// second does not wait for another client's ten thousand leases of half a minute.
type extensionQueue struct {
	waiting leaseHeap // by due
	due     leaseHeap // by lossAt
}

func newExtensionQueue() extensionQueue { return extensionQueue{due: leaseHeap{byLoss: true}} }

// all are the leases, in no order.
func (a *extensionQueue) all() []*Lease { return slices.Concat(a.waiting.leases, a.due.leases) }

// schedule records when the lease is to be looked after, and when it is lost otherwise. It
// tells whether it is the first of those that wait now.
func (a *extensionQueue) schedule(l *Lease, due, lossAt time.Duration) (first bool) {
	a.remove(l)
	l.due, l.lossAt = due, lossAt
	heap.Push(&a.waiting, l)
	return a.waiting.leases[0] == l
}

func (a *extensionQueue) remove(l *Lease) {
	if l.heap != nil {
		heap.Remove(l.heap, l.index)
	}
}

// moveDue moves the leases that are due by now: many at a time, but not more, for that takes a
// while, and is asked for again soon.
func (a *extensionQueue) moveDue(now time.Duration) {
	for range movedAtOnce {
		if a.waiting.Len() == 0 || a.waiting.leases[0].due > now {
			return
		}
		heap.Push(&a.due, heap.Pop(&a.waiting))
	}
}

const movedAtOnce = 8 * batchSize

// pop is the lease that is due and lost first; nil: none is due.
func (a *extensionQueue) pop() *Lease {
	if a.due.Len() == 0 {
		return nil
	}
	return heap.Pop(&a.due).(*Lease)
}

// next is how long after now the next one is due, idle where there is none.
func (a *extensionQueue) next(now time.Duration) time.Duration {
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
	l.heap, l.index = h, len(h.leases)
	h.leases = append(h.leases, l)
}

func (h *leaseHeap) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last] = nil
	h.leases = h.leases[:last]
	l.heap = nil
	return l
}
