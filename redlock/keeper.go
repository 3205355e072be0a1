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

// keeper extends all leases of a Quorum. It has one queue and one goroutine, which
// Quorum.Close waits for. It extends leases that are due together with one call per node.
type keeper struct {
	q         *Quorum
	clock     func() time.Duration
	start     time.Time
	clockLead time.Duration // how much the clock was ahead of the time since start; used by the keeper's goroutine only
	wake      chan struct{} // of capacity 1: something is due earlier than expected
	closed    atomic.Bool   // no lease is extended and no loss is reported after that

	inFlight atomic.Int32  // batches that are not decided yet
	rounds   atomic.Uint64 // rounds of its loop

	mu     sync.Mutex // guards the fields below, and the queue's fields of a lease; no other mutex is taken inside it
	queue  extensionQueue
	forced map[string]int // recently revoked tokens of leases that were in a ballot, and by how many FORCEs
}

const (
	// extendShare: a lease is extended when a third of its ttl has passed. So most of it is left
	// to retry extensions that fail.
	extendShare = 3
	batchSize   = node.MaxOps // keys
	// maxUnderWay bounds the batches in progress. If thousands of leases are due together, the
	// keeper sends them only as fast as the nodes answer. So a lease that is due sooner can go
	// first. 16 batches take two milliseconds of a node's time. Fewer would be too slow for nodes
	// whose answers take long, however small they are.
	maxUnderWay = 16
	// earlyBy is how much before it is due a lease may be extended together with others.
	earlyBy = 5 * time.Millisecond
	// A failed extension is retried after about retryExtend. The delay doubles, up to a
	// retryShare of the ttl.
	retryExtend = 40 * time.Millisecond
	retryShare  = 10
)

func newKeeper(q *Quorum) *keeper {
	start := time.Now()
	return &keeper{q: q, clock: q.clock, start: start, clockLead: q.clock(), wake: make(chan struct{}, 1), queue: extensionQueue{due: leaseHeap{byLoss: true}}}
}

// run extends leases until ctx ends.
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

// noticeSuspension runs the timers of all leases after the host was suspended. Timers run on
// CLOCK_MONOTONIC, which stopped, so they would report LOST too late. For the same reason
// noticeSuspension makes the lanes look at their nodes: see admission.Fleet.LatestDeadline.
func (k *keeper) noticeSuspension() {
	ahead := k.clock() - time.Since(k.start)
	jumped := ahead-k.clockLead > suspensionCheck/2
	if k.clockLead = ahead; !jumped {
		return
	}
	k.q.lookAtAll()
	for _, l := range k.all() {
		l.onTimer()
	}
}

// age moves the deadlines of all leases back: this host's clock stopped, so they are older than
// they seem. Leases that have expired according to their new deadlines report LOST at once. (age
// does not find leases that are in a ballot or not granted yet. They are aged when they enter the
// queue.)
func (k *keeper) age() {
	all := k.all()
	for _, l := range all {
		l.age(k.q.admission.TotalMissed())
	}
	if k.q.options.DeadlinesMovedBack != nil {
		k.q.options.DeadlinesMovedBack()
	}
	for _, l := range all {
		l.onTimer()
	}
}

// all returns the leases that are in no ballot.
func (k *keeper) all() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.queue.all()
}

// extendDue extends all leases that are due, and returns the time until the next one is.
func (k *keeper) extendDue() time.Duration {
	for k.inFlight.Load() < maxUnderWay {
		now := k.clock()
		due, next := k.popDue(now)
		if len(due) == 0 {
			return next
		}
		batch := slices.DeleteFunc(due, func(l *Lease) bool { return k.watchUnkept(l) || k.watchUnpassed(l, now) })
		if len(batch) > 0 {
			k.exchangeTokens(batch, now)
			k.send(batch, now)
		}
	}
	return idle // the keeper wakes when a batch is decided
}

// watchUnkept handles a lease that is not to be extended, and returns false for any other. It
// reports the loss if that is due. Otherwise it schedules the lease for its loss, or for the
// exchange of its token.
func (k *keeper) watchUnkept(l *Lease) bool {
	exchange := l.exchangeDue()
	if l.extendable() || exchange <= k.clock()+earlyBy {
		return false
	}
	l.onTimer()
	lost := max(l.lossDue(), k.clock()+timerInterval) + earlyBy // not earlier, even if others are due earlier
	k.schedule(l, min(lost, exchange))
	return true
}

// watchUnpassed handles a lease whose confirmation is due although it is no longer passed on:
// it schedules the lease's extension. It returns false for any other lease.
func (k *keeper) watchUnpassed(l *Lease, now time.Duration) bool {
	due := min(l.extensionDue(), l.exchangeDue())
	if h := l.host(); h == nil || h.needsConfirmation(now) || due <= now+earlyBy {
		return false
	}
	k.schedule(l, due)
	return true
}

const (
	idle          = time.Hour        // nothing is due; a new lease wakes the keeper
	timerInterval = time.Millisecond // shortest time between two runs of a lease's timer
	// suspensionCheck is how often CLOCK_BOOTTIME is compared with CLOCK_MONOTONIC. A fifth
	// of the shortest ttl would be 20 ms, but no suspension is that short.
	suspensionCheck = 100 * time.Millisecond
)

// popDue takes leases that are due, up to batchSize keys, in the order in which they would
// be lost. If none is due, it returns when the next one will be.
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

// send sends one extension of many leases to the nodes.
func (k *keeper) send(batch []*Lease, now time.Duration) {
	e := newExtension(k, batch, now)
	e.onDecided = func() { // there is room for the next batch
		k.inFlight.Add(-1)
		k.wakeUp()
	}
	for _, l := range batch {
		l.noteAsked(now)
	}
	e.confirmPassed()
	k.inFlight.Add(1)
	e.send()
	for i := range e.passed { // the next confirmation does not wait for this one
		if e.passed[i].host != nil {
			k.watch(batch[i], now+confirmEvery)
		}
	}
}

// wakeUp makes the keeper look for leases that are due.
func (k *keeper) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default: // the keeper is about to look
	}
}

// watch schedules the lease's extension at due, or its loss if it is not to be extended.
// Every held lease is in the queue or in a ballot.
func (k *keeper) watch(l *Lease, due time.Duration) { k.schedule(l, k.dueOf(l, due)) }

// watchAgain is watch for a lease that was in a ballot: Force did not find it there.
func (k *keeper) watchAgain(l *Lease, due time.Duration) {
	if k.watch(l, due); k.wasForced(l) {
		l.lose(LostForced)
	}
}

// dueOf returns when the keeper must handle the lease. If the lease is extendable, that is at
// due, or earlier while it is passed on. Otherwise it is shortly after its loss is due. In both
// cases, a token exchange can be due earlier.
func (k *keeper) dueOf(l *Lease, due time.Duration) time.Duration {
	exchange := l.exchangeDue()
	if !l.extendable() {
		return min(l.lossDue()+earlyBy, exchange)
	}
	due = min(due, exchange)
	if h := l.host(); h != nil && !l.isDowngraded() && l.tokens().former == "" {
		return h.confirmationDue(due, k.clock())
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
	k.wakeUp()
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
		k.wakeUp()
	}
	k.ageMissed(l)
}

// ageMissed ages a lease that age did not find. The timer reports LOST even if that is due
// now, because Acquire and Adopt return a lease before its loss is reported.
func (k *keeper) ageMissed(l *Lease) {
	if l.age(k.q.admission.TotalMissed()) {
		k.reportDeadline(l)
		l.rearm(k.clock())
	}
}

// scheduleLocked puts the lease into the queue, or moves it there. It reports whether the lease
// is now the first. The caller holds mu.
func (k *keeper) scheduleLocked(l *Lease, due, lossAt time.Duration) (first bool) {
	return !l.forgotten && k.queue.schedule(l, due, lossAt)
}

// forget stops extending the lease, which was lost or released.
func (k *keeper) forget(l *Lease) {
	k.mu.Lock()
	l.forgotten = true
	k.queue.remove(l)
	k.mu.Unlock()
	l.reportConfirmed()
}

// confirmed handles a lease that a quorum extended. The nodes were asked at start, and missed is
// how much time this host's clock had missed by then. latest is the result of
// admission.Fleet.LatestDeadline.
func (k *keeper) confirmed(l *Lease, start, missed, latest, ttl time.Duration, changes bool) {
	now := k.clock()
	left := l.Deadline() - now
	next := start + min(ttl, l.TTL())/extendShare
	if changes {
		next = start + ttl/extendShare
	}
	k.q.hooks.confirmed()
	deadline := min(start+ttl-drift(ttl), latest)
	if !l.extended(deadline, missed, ttl, next, now, changes) {
		if to := l.current(); to != l && !changes { // it was passed on meanwhile
			k.confirmed(to, start, missed, latest, ttl, changes)
			return
		}
		l.onTimer() // too late: report LOST, unless that has been done
		return
	}
	l.failedTries.Store(0)
	k.reportDeadline(l)
	if h := l.host(); k.q.options.Extended != nil && !changes && (h == nil || !h.needsConfirmation(now)) {
		k.q.options.Extended(left, ttl)
	}
	l.reportConfirmed()
	k.watchAgain(l, next)
}

// reportDeadline reports that the deadline of a lease changed.
func (k *keeper) reportDeadline(l *Lease) {
	if l.isPending() {
		return // Acquire has not returned it yet
	}
	if k.q.options.DeadlineChanged != nil {
		k.q.options.DeadlineChanged(l)
	}
}

// retry handles an extension that reached no quorum. The lease is as valid as before. The
// keeper retries after a short random delay, until LOST is reported.
func (k *keeper) retry(l *Lease, ttl time.Duration, cause error) {
	l = l.current()
	l.mu.Lock()
	l.cause = cause
	l.mu.Unlock()
	l.onTimer()
	doubled := retryExtend << min(l.failedTries.Add(1)-1, 10)
	limit := min(doubled, max(ttl/retryShare, retryExtend))
	due := k.clock() + limit/2 + k.q.hooks.Jitter(l.name(), limit/2)
	l.retryExchange(due)
	k.watchAgain(l, due)
}

// loseForced reports LOST for a lease of this Quorum that was revoked. If the lease is in a
// ballot, that happens when the ballot ends. If the token is just being passed on, the lease that
// gets it is lost.
func (k *keeper) loseForced(token string) {
	if l := k.forceToken(token); l != nil {
		l.loseCurrent(LostForced)
	}
}

// forceToken returns the lease that has the token. If it returns nil, this Quorum has no such
// lease, or the lease is in a ballot. For the second case it records the token for a while. By
// the end of that time, each node has answered the ballot, or its connection has ended.
func (k *keeper) forceToken(token string) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.queue.all()
	if at := slices.IndexFunc(all, func(l *Lease) bool { return l.tokens().has(token) }); at >= 0 {
		return all[at]
	}
	if k.forced == nil {
		k.forced = map[string]int{}
	}
	k.forced[token]++
	time.AfterFunc(node.SilenceLimit(k.q.options.NodeTimeout), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.forced[token]--; k.forced[token] == 0 { // else a later FORCE has recorded it, too
			delete(k.forced, token)
		}
	})
	return nil
}

func (k *keeper) wasForced(l *Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	token := l.tokens()
	return k.forced[token.current] > 0 || k.forced[token.former] > 0
}

// extensionQueue holds the leases that are in no ballot. Leases that are not due yet are ordered
// by the time when they are due. Due leases are ordered by the time when they would be lost. If
// more are due than the nodes can handle at once, the leases with the least time left come first.
// So a lease of one second does not wait for another client's ten thousand leases of half a
// minute.
type extensionQueue struct {
	waiting leaseHeap // by due
	due     leaseHeap // by lossAt
}

// all returns the leases in no order.
func (a *extensionQueue) all() []*Lease { return slices.Concat(a.waiting.leases, a.due.leases) }

// schedule records when the lease is due, and when it would be lost. It reports whether the
// lease is now the first of the waiting leases.
func (a *extensionQueue) schedule(l *Lease, due, lossAt time.Duration) (first bool) {
	a.remove(l)
	l.due, l.lossAt = due, lossAt
	heap.Push(&a.waiting, l)
	return a.waiting.leases[0] == l
}

func (a *extensionQueue) remove(l *Lease) {
	if l.heap != nil {
		heap.Remove(l.heap, int(l.index))
	}
}

// moveDue moves leases that are due by now to the due heap. It moves a limited number at a
// time, because a move takes time, and the keeper soon calls it again.
func (a *extensionQueue) moveDue(now time.Duration) {
	for range movedAtOnce {
		if a.waiting.Len() == 0 || a.waiting.leases[0].due > now {
			return
		}
		heap.Push(&a.due, heap.Pop(&a.waiting))
	}
}

const movedAtOnce = 8 * batchSize

// pop removes and returns the due lease that would be lost first; nil: none is due.
func (a *extensionQueue) pop() *Lease {
	if a.due.Len() == 0 {
		return nil
	}
	return heap.Pop(&a.due).(*Lease)
}

// next returns the time from now until the next waiting lease is due; idle if there is
// none.
func (a *extensionQueue) next(now time.Duration) time.Duration {
	if a.waiting.Len() == 0 {
		return idle
	}
	return max(a.waiting.leases[0].due-now, 0)
}

// leaseHeap orders leases (container/heap).
type leaseHeap struct {
	leases []*Lease
	byLoss bool // ordered by lossAt; else by due
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
	h.leases[i].index, h.leases[j].index = int32(i), int32(j)
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.heap, l.index = h, int32(len(h.leases))
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
