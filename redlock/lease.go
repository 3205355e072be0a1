package redlock

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Lease is a lock that was granted. It is safe for concurrent use.
type Lease struct {
	keeper *keeper
	target
	token      string
	fence      uint64
	maybeOn    *node.NodeSet
	onLost     func(*Lease)
	since      time.Duration // BootTime of the grant
	maxHoldEnd time.Duration // BootTime that no deadline exceeds (Request.Max); 0: no bound
	guard      time.Duration // 0: ttl/5

	extra *leaseExtra // fields that only few leases need; nil: this one needs none of them

	// The small fields stand together, because there are tens of thousands of leases.
	failedTries atomic.Int32 // failed extensions in a row
	index       int32        // in heap; guarded by the keeper's mu
	kept        bool         // extended until released or lost
	forgotten   bool         // never to be extended again; guarded by the keeper's mu
	wanted      bool         // guarded by mu
	downgraded  bool         // see Downgrade; guarded by mu
	state       leaseState   // guarded by mu

	// mu guards wanted, downgraded, state and the fields below. It is never held across I/O or a
	// callback. Only the mutexes of lanes (repair) and of a hostLease are taken inside it.
	mu            sync.Mutex
	reason        LostReason
	ttl           time.Duration
	deadline      time.Duration // BootTime
	missed        time.Duration // how much time this host's clock had missed, as far as deadline takes it into account
	releaseAt     time.Duration // BootTime at which a lost lease is released
	cause         error         // why the last extension failed; nil: it succeeded
	nextExtension time.Duration // BootTime at which its extension is due; 0: never
	askedAt       time.Duration // BootTime at which the nodes were first asked to extend it; 0: never
	lostSignal    chan struct{} // Lost returns it; nil before the first call
	timer         *time.Timer   // reports LOST, even if the nodes and the keeper do nothing

	// The keeper's mu guards the fields below.
	due    time.Duration // when the next extension is to be sent
	lossAt time.Duration // when LOST is reported if no extension succeeds
	heap   *leaseHeap    // the heap of the extension queue that has the lease; nil: none
}

// leaseState changes once: from held to released, or from held to lost.
type leaseState uint8

const (
	held leaseState = iota
	released
	lost
)

// grant makes the lease of a won attempt that began at start. Its ttl and the time until
// its first extension count from start.
func (k *keeper) grant(r *Request, g *grant, start, now time.Duration) *Lease {
	l := &Lease{
		keeper:        k,
		target:        g.target,
		token:         g.token,
		fence:         g.fence,
		wanted:        g.wanted,
		maybeOn:       g.maybeOn,
		onLost:        r.OnLost,
		kept:          r.Keep,
		since:         now,
		ttl:           r.TTL,
		guard:         r.Guard,
		deadline:      g.deadline,
		missed:        g.missed,
		nextExtension: start + r.TTL/extendShare,
	}
	if r.Max > 0 {
		l.maxHoldEnd = holdEnd(r.Max, now)
	}
	if r.Block > 1 && l.kind == "" {
		l.extra = &leaseExtra{host: newHostLease(l, r.Block, g.blockEnd, start, now)}
	}
	l.arm(now)
	if k.watch(l, l.nextExtension); k.wasForced(l) { // Force did not find it, because it was not in the queue yet
		time.AfterFunc(0, func() { l.lose(LostForced) }) // on another goroutine, as the timer does
	}
	return l
}

// holdEnd returns the instant that no deadline exceeds.
func holdEnd(maxHold, now time.Duration) time.Duration {
	return now + min(maxHold, math.MaxInt64-now) // the largest Duration may be sooner
}

// arm sets the timer that reports LOST.
func (l *Lease) arm(now time.Duration) {
	l.mu.Lock() // the timer may fire at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.lostAtLocked()-now, l.onTimer)
}

// rearm resets the timer if the lease is held.
func (l *Lease) rearm(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == held {
		l.timer.Reset(l.lostAtLocked() - now)
	}
}

// Name returns the name of the lock, or several separated by commas.
func (l *Lease) Name() string { return l.name() }

// Names returns the names of the lock, in the order of the request.
func (l *Lease) Names() []string { return l.names() }

// Shared reports whether other clients may share the lock.
func (l *Lease) Shared() bool { return l.kind == script.KindShared || l.isDowngraded() }

// isDowngraded reports whether nodes may have the lease as exclusive although it is shared.
// Then each extension makes it shared on the nodes. Every adopted reader counts as
// downgraded, because the earlier process may have been killed before it asked the nodes.
func (l *Lease) isDowngraded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.downgraded
}

// Slots returns the number of slots of a semaphore; 0: the lock is not one.
func (l *Lease) Slots() int { return script.SlotsOf(l.kind) }

// Slot returns the granted slot, from 1 to Slots; 0: the lock is not a semaphore.
func (l *Lease) Slot() int { return int(l.slot) }

// ID returns a random secret that identifies this grant.
func (l *Lease) ID() string {
	if l.Passed() {
		return l.extra.id
	}
	return l.TokenID()
}

// Fence returns the fencing token of this grant. It is larger than the token of every grant of
// the same name that existed when this one was requested. No two grants have the same token,
// except for readers whose requests overlap. A resource can store the largest token that it saw,
// and reject smaller ones (WHERE fence <= $token). Then a holder that was paused beyond its
// deadline cannot harm it. The token is not a time, although it looks like microseconds.
func (l *Lease) Fence() uint64 { return l.fence }

// Lost returns a channel that is closed when the lease is lost. That happens earlier than the
// deadline (see Guard), so that the holder can stop in time. A lost lease is never held again. A
// released lease is not lost.
func (l *Lease) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostSignal == nil {
		l.lostSignal = make(chan struct{})
		if l.state == lost {
			close(l.lostSignal)
		}
	}
	return l.lostSignal
}

// Deadline returns the BootTime until which the lease is certainly held. Each extension moves it.
func (l *Lease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Validity returns the time left until the deadline; negative after it.
func (l *Lease) Validity() time.Duration { return l.Deadline() - l.keeper.clock() }

// TTL returns the duration by which the lease is extended.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// Since returns the BootTime at which the lease was granted.
func (l *Lease) Since() time.Duration { return l.since }

// Reason returns why the lease was lost; "": it was not.
func (l *Lease) Reason() LostReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// Cause returns why the last extension failed. If a lease was lost without a quorum, that is also
// the cause of the loss. It returns an [OverdueError] if the extension came too late. It can also
// return that the lease counts as older, because this host's clock may have stopped. Nil: none of
// these.
func (l *Lease) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Err returns nil while the lease is held. Afterwards the error matches ErrLost or
// ErrReleased. It asks no node.
func (l *Lease) Err() error {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errAtLocked(now)
}

// errAtLocked is Err at the time now. A lease whose loss is due counts as lost even if its timer
// has not run yet (the host was suspended, or is busy). The caller holds mu.
func (l *Lease) errAtLocked(now time.Duration) error {
	switch {
	case l.state == released:
		return fmt.Errorf("%s: %w", l.name(), ErrReleased)
	case l.state == lost:
		return &LostError{Name: l.name(), Reason: l.reason}
	case now >= l.lostAtLocked():
		return &LostError{Name: l.name(), Reason: l.reasonOfLocked()}
	}
	return nil
}

// Guard returns how long before its deadline the lease is lost unless it is extended. It is
// the Request's guard, or a share of the ttl, which [Lease.Extend] may change.
func (l *Lease) Guard() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.lostAtLocked()
}

// drift returns how much sooner a lease ends here than on the nodes. It allows for clocks that
// run at slightly different rates.
func drift(ttl time.Duration) time.Duration { return admission.DriftAllowance(ttl) }

// lostAtLocked returns the instant at which LOST is reported unless the lease is extended first: early
// enough for the holder to stop.
// The caller holds mu.
func (l *Lease) lostAtLocked() time.Duration {
	guard := l.guard
	if guard == 0 {
		guard = l.ttl / guardShare
	}
	return l.deadline - guard
}

// reasonOfLocked returns why a lease that was not extended is lost. The caller holds mu.
func (l *Lease) reasonOfLocked() LostReason {
	switch {
	case l.maxHoldEnd != 0 && l.deadline >= l.maxHoldEnd:
		return LostMax
	case !l.kept:
		return LostExpired
	}
	return LostQuorum
}

// finish moves the lease out of the state held, for good. A lease whose loss is due is lost
// and cannot be released.
func (l *Lease) finish(state leaseState, reason LostReason, now time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finishLocked(state, reason, now)
}

// finishLocked is finish for a caller that holds mu.
func (l *Lease) finishLocked(state leaseState, reason LostReason, now time.Duration) error {
	if l.state != held || state == released && now >= l.lostAtLocked() {
		return l.errAtLocked(now)
	}
	l.state, l.reason = state, reason
	if reason == LostQuorum && l.kept {
		l.cause = l.lossCauseLocked(now)
	}
	l.releaseAt = l.deadline // and not sooner: its holder may not have stopped yet
	if l.timer.Stop(); state == lost {
		if l.lostSignal != nil {
			close(l.lostSignal)
		}
		l.timer.Reset(l.releaseAt - now)
	}
	return nil
}

// Keep makes the keeper extend the lease from now on until it is released or lost, like
// Request.Keep. It is for a lease that was adopted without a holder (Record.Keep) and has one
// again.
func (l *Lease) Keep() {
	now := l.keeper.clock()
	l.mu.Lock()
	l.kept, l.nextExtension = true, now
	l.mu.Unlock()
	l.keeper.watch(l, now)
}

// extended moves the deadline forward. The new deadline takes into account that this host's clock
// had missed the time missed. The extension counts only while the lease is held, before the old
// deadline and before LOST: an expired lease never becomes valid again.
func (l *Lease) extended(deadline, missed, ttl, next, now time.Duration, changes bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ageLocked(l.keeper.q.admission.TotalMissed())
	deadline -= l.missed - missed
	if l.errAtLocked(now) != nil {
		return false
	}
	if changes {
		l.ttl = ttl
	}
	l.cause, l.nextExtension, l.askedAt = nil, next, 0
	l.deadline = max(l.deadline, l.capDeadline(deadline))
	l.timer.Reset(l.lostAtLocked() - now)
	return true
}

// age moves the deadline back by the part of missed that it does not take into account yet. The
// nodes' keys expire that much sooner than this host expected. It reports whether the deadline
// moved. A lease that was lost or released does not change.
func (l *Lease) age(missed time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ageLocked(missed)
}

// ageLocked is age for a caller that holds mu. If no extension has failed, it records this as the
// cause of a later loss.
func (l *Lease) ageLocked(missed time.Duration) bool {
	by := missed - l.missed
	if l.state != held || by <= 0 {
		return false
	}
	l.deadline -= by
	l.missed = missed
	if h := l.host(); h != nil {
		h.age(by)
	}
	if l.cause == nil {
		l.cause = &agedError{name: l.name(), by: by}
	}
	return true
}

// extendable reports whether the keeper must extend the lease.
func (l *Lease) extendable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept && (l.maxHoldEnd == 0 || l.deadline < l.maxHoldEnd)
}

// lossDue returns the BootTime at which LOST is reported unless the lease is extended.
func (l *Lease) lossDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostAtLocked()
}

// capDeadline limits a deadline to Request.Max.
func (l *Lease) capDeadline(deadline time.Duration) time.Duration {
	if l.maxHoldEnd != 0 {
		return min(deadline, l.maxHoldEnd)
	}
	return deadline
}

// Record returns the lease's current record. Its deadline moves: see Options.DeadlineChanged and
// Options.DeadlinesMovedBack.
func (l *Lease) Record() Record {
	r := l.target.record()
	r.Fence, r.Guard = l.fence, l.guard
	if l.Passed() {
		r.Grant = l.extra.id
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	token := l.tokens()
	r.Token, r.Former, r.Shared = token.current, token.former, r.Shared || l.downgraded
	r.TTL, r.Deadline, r.Keep, r.End, r.Since = l.ttl, l.deadline, l.kept, l.maxHoldEnd, l.since
	if l.state == lost {
		r.Lost = l.reason
	}
	return r
}

// Lose marks the lease lost, for a reason that the caller knows. The keeper stops extending
// it, and OnLost is called as for any other loss. The lock is released at the stated
// deadline, not earlier, so the holder has at least the guard to stop. Lose does nothing to
// a lease that was lost or released.
func (l *Lease) Lose(reason LostReason) { l.lose(reason) }

// LoseSilently stops extending and marks the lease lost, without a call of OnLost. It is for a
// holder that cannot be reached but may still be running. The lock is released at the stated
// deadline, not earlier.
func (l *Lease) LoseSilently() {
	if l.finish(lost, LostQuorum, l.keeper.clock()) == nil {
		l.keeper.forget(l)
	}
}

// lose marks the lease lost and reports it. It is called by the timer, and for answers that prove
// the loss.
func (l *Lease) lose(reason LostReason) {
	if l.keeper.closed.Load() || l.finish(lost, reason, l.keeper.clock()) != nil {
		return
	}
	l.keeper.forget(l)
	if l.isPending() {
		return // Acquire has not returned it yet, and notices the loss
	}
	l.keeper.q.counts.lost.Add(1)
	if l.onLost != nil {
		l.onLost(l)
	}
}

// onTimer runs when the lease's timer fires. While the lease is held, it reports LOST, or waits
// longer if the lease was extended in the meantime. At the deadline of a lost lease it releases
// the keys that nodes may still hold.
func (l *Lease) onTimer() {
	now := l.keeper.clock()
	l.mu.Lock()
	state, reason, left := l.state, l.reasonOfLocked(), l.lostAtLocked()-now
	if state == lost {
		left = l.releaseAt - now
	}
	if state != released && left > 0 {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	switch {
	case left > 0:
	case state == held:
		l.lose(reason)
	case state == lost:
		l.keeper.q.abandon(&l.target, l.tokens(), l.maybeOn)
	}
}

// overdueShare is the share of the ttl by which an extension may be late before the delay is
// named as a cause of a loss.
const overdueShare = 10

// noteAsked records when the nodes were first asked to extend the lease since its last
// extension.
func (l *Lease) noteAsked(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.askedAt == 0 {
		l.askedAt = now
	}
}

// lossCauseLocked returns the cause of a loss at the time now. The caller holds mu.
func (l *Lease) lossCauseLocked(now time.Duration) error {
	asked := l.askedAt
	if asked == 0 {
		asked = now
	}
	_, aged := l.cause.(*agedError)
	switch {
	case !aged && l.nextExtension != 0 && asked-l.nextExtension >= l.ttl/overdueShare:
		return &OverdueError{Name: l.name(), Took: l.lateGrantTimeLocked(), Due: now - l.nextExtension, Asked: now - asked, Tries: int(l.failedTries.Load()), Err: l.cause}
	case l.cause == nil && l.askedAt != 0:
		return fmt.Errorf("%s: %w: the extension was sent to the nodes %v ago, and too few have answered: they hang, and node_timeout is long for its ttl, or this host is overloaded, or was stopped",
			l.name(), ErrNoQuorum, (now - l.askedAt).Round(time.Millisecond))
	}
	return l.cause
}

// lateGrantTimeLocked returns how long the grant took, if the first extension was due before the grant;
// otherwise 0. It also returns 0 for an adopted lease, which was granted to an earlier process.
// The caller holds mu.
func (l *Lease) lateGrantTimeLocked() time.Duration {
	if l.isAdopted() || l.since < l.nextExtension {
		return 0
	}
	return l.since - (l.nextExtension - l.ttl/extendShare)
}
