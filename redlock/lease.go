package redlock

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Lease is a lock that was granted. It is safe for concurrent use.
type Lease struct {
	keeper *keeper
	target
	token   string
	fence   uint64
	maybeOn *node.NodeSet
	onLost  func(*Lease)
	since   time.Duration // BootTime of the grant
	end     time.Duration // BootTime that no deadline passes (Request.Max); 0: no bound
	guard   time.Duration // 0: ttl/5

	onConfirmed func() // of one that was adopted: it is confirmed, or over; nil: it was granted here

	// What is small stands together: there are tens of thousands of leases.
	tries     atomic.Int32 // failed extensions in a row
	wanted    bool
	kept      bool       // extended until released or lost
	forgotten bool       // never to be extended again; the keeper's, under its mu
	state     leaseState // guarded by mu

	mu         sync.Mutex // guards state and what follows; never held across I/O or a callback
	reason     LostReason
	ttl        time.Duration
	deadline   time.Duration // BootTime
	missed     time.Duration // what this host's clock had missed, as far as deadline knows
	releaseAt  time.Duration // BootTime at which a lost one is released
	cause      error         // why the last extension failed; nil: it did not
	next       time.Duration // BootTime at which it is to be extended; 0: never
	askedAt    time.Duration // and at which the nodes were first asked to; 0: they were not
	lostSignal chan struct{} // what Lost returns; nil before the first call
	timer      *time.Timer   // says LOST, whatever the nodes and the keeper do

	// What follows belongs to the keeper, under its mu.
	due    time.Duration // when the next extension is to be sent
	lossAt time.Duration // when LOST is said if none comes to anything
	heap   *leaseHeap    // of the extension queue; nil: in none
	index  int           // in that
}

// leaseState: held → released, or held → lost. Nothing leads back.
type leaseState uint8

const (
	held leaseState = iota
	released
	lost
)

// grant makes the lease of an attempt that was won, and began at start: its ttl runs from
// then on, and so does the third of it that is waited for until it is extended.
func (k *keeper) grant(r *Request, g *grant, start, now time.Duration) *Lease {
	l := &Lease{
		keeper:   k,
		target:   g.target,
		token:    g.token,
		fence:    g.fence,
		wanted:   g.wanted,
		maybeOn:  g.maybeOn,
		onLost:   r.OnLost,
		kept:     r.Keep,
		since:    now,
		ttl:      r.TTL,
		guard:    r.Guard,
		deadline: g.deadline,
		missed:   g.missed,
		next:     start + r.TTL/extendShare,
	}
	if r.Max > 0 {
		l.end = now + min(r.Max, math.MaxInt64-now) // there may be no later instant; the ttl is no longer
	}
	l.arm(now)
	if k.watch(l, l.next); k.wasForced(l) { // before it was there to be found
		time.AfterFunc(0, func() { l.lose(LostForced) }) // as its timer does
	}
	return l
}

// arm sets the timer that says LOST.
func (l *Lease) arm(now time.Duration) {
	l.mu.Lock() // it may ring at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.lostAt()-now, l.onTimer)
}

// rearm sets it anew while the lease is held.
func (l *Lease) rearm(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == held {
		l.timer.Reset(l.lostAt() - now)
	}
}

// Name is the name of the lock, or several with commas between them.
func (l *Lease) Name() string { return l.name() }

// Names are the names of the lock, in the order in which they were asked for.
func (l *Lease) Names() []string { return l.names() }

// Shared tells whether others may share the lock.
func (l *Lease) Shared() bool { return l.kind == script.KindShared }

// Slots is how many places there are, of a semaphore; 0: it is none.
func (l *Lease) Slots() int { return script.SlotsOf(l.kind) }

// Slot is the place that was granted, from 1 to Slots; 0 where there are none.
func (l *Lease) Slot() int { return int(l.slot) }

// Wanted tells whether somebody, on whichever host, waited for the lock when it was
// granted, as far as the nodes said so: those of a hand-over, of shared locks, of
// semaphores and of several names do.
func (l *Lease) Wanted() bool { return l.wanted }

// ID is the random part of the token: a secret that names this grant.
func (l *Lease) ID() string {
	_, token := splitMember(l.token)
	return token[:tokenID]
}

// Fence is the fencing token of this grant: larger than that of every grant of
// the same name that was there when this one was asked for, and never given
// twice, but to readers whose requests cross. A resource that remembers the largest that
// it saw, and refuses smaller ones (WHERE fence <= $token), is safe from a holder that was
// paused beyond its deadline. It says nothing of time, though it looks like microseconds.
func (l *Lease) Fence() uint64 { return l.fence }

// Lost is closed when the lease is lost: before its deadline by the guard, so
// that the holder can stop in time. It is final. A released lease is not lost.
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

// Deadline is the BootTime until which the lease is held for sure. It moves as
// the lease is extended.
func (l *Lease) Deadline() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Validity is the time left until the deadline; negative after it.
func (l *Lease) Validity() time.Duration { return l.Deadline() - l.keeper.clock() }

// TTL is what the lease is extended by.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// Since is the BootTime at which the lease was granted.
func (l *Lease) Since() time.Duration { return l.since }

// Reason says how the lease was lost; "" while it is not.
func (l *Lease) Reason() LostReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// Cause returns why the last extension failed, which is why the lease was lost if that was
// for want of a quorum; an [OverdueError] if the extension came too late; or that the lease
// counts as older because this host's clock may have stopped. Nil: neither.
func (l *Lease) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Err is nil while the lease is held, and matches ErrLost or ErrReleased
// after. It asks no node.
func (l *Lease) Err() error {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errAt(now)
}

// errAt needs mu. A lease whose instant of loss is past is as good as lost,
// whether its timer ran yet or not (a host that was suspended, a busy one).
func (l *Lease) errAt(now time.Duration) error {
	switch {
	case l.state == released:
		return fmt.Errorf("%s: %w", l.name(), ErrReleased)
	case l.state == lost:
		return &LostError{Name: l.name(), Reason: l.reason}
	case now >= l.lostAt():
		return &LostError{Name: l.name(), Reason: l.reasonOf()}
	}
	return nil
}

// Guard is how long before its deadline the lease is lost unless it is extended: the
// Request's, or a share of the ttl, which [Lease.Extend] may change.
func (l *Lease) Guard() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.lostAt()
}

// lostAt is the instant at which LOST is said unless the lease is extended
// before. The caller holds mu.
func (l *Lease) lostAt() time.Duration {
	guard := l.guard
	if guard == 0 {
		guard = l.ttl / guardShare
	}
	return l.keeper.rules.lossDue(l.deadline, guard)
}

// reasonOf says why a lease that nobody extended is lost. The caller holds mu.
func (l *Lease) reasonOf() LostReason {
	switch {
	case l.end != 0 && l.deadline >= l.end:
		return LostMax
	case !l.kept:
		return LostExpired
	}
	return LostQuorum
}

// finish takes the lease out of the state held, for good. A lease whose
// instant of loss is past is lost, not released.
func (l *Lease) finish(state leaseState, reason LostReason, now time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != held || state == released && now >= l.lostAt() {
		return l.errAt(now)
	}
	l.state, l.reason = state, reason
	if reason == LostQuorum && l.kept {
		l.cause = l.why(now)
	}
	l.releaseAt = l.keeper.rules.releaseAt(now, l.deadline)
	if l.timer.Stop(); state == lost {
		if l.lostSignal != nil {
			close(l.lostSignal)
		}
		l.timer.Reset(l.releaseAt - now)
	}
	return nil
}

// Keep has the lease extended from now on until it is released or lost, as
// Request.Keep: somebody holds it again whom nobody was there for (Record.Keep).
func (l *Lease) Keep() {
	now := l.keeper.clock()
	l.mu.Lock()
	l.kept, l.next = true, now
	l.mu.Unlock()
	l.keeper.watch(l, now)
}

// extended moves the deadline on, to one that knows of what this host's clock had missed
// by then. It counts only while the lease is held and before the old deadline and LOST: a
// lapsed lease never comes back.
func (l *Lease) extended(deadline, missed, ttl, next, now time.Duration, changes bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ageTo(l.keeper.q.admission.TotalMissed())
	deadline -= l.missed - missed
	if !l.keeper.rules.isAlive(l.errAt(now)) {
		return false
	}
	if changes {
		l.ttl = ttl
	}
	l.cause, l.next, l.askedAt = nil, next, 0
	l.deadline = l.keeper.rules.laterDeadline(l.deadline, l.capped(deadline))
	l.timer.Reset(l.lostAt() - now)
	return true
}

// age moves the deadline back by what this host's clock has missed, as far as it is not
// known to it: the nodes are so much nearer to it than was thought. It tells whether
// there was any. What is over stays as it was.
func (l *Lease) age(missed time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ageTo(missed)
}

// ageTo is age. Where that is why the lease is lost, no extension has failed. The caller
// holds mu.
func (l *Lease) ageTo(missed time.Duration) bool {
	by := missed - l.missed
	if l.state != held || by <= 0 {
		return false
	}
	l.deadline -= by
	l.missed = missed
	if l.cause == nil {
		l.cause = &agedError{name: l.name(), by: by}
	}
	return true
}

// extendable tells whether the keeper is to extend the lease.
func (l *Lease) extendable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept && (l.end == 0 || l.deadline < l.end)
}

// lossDue is the BootTime at which LOST is said unless the lease is extended.
func (l *Lease) lossDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostAt()
}

// failed notes why an extension failed.
func (l *Lease) failed(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cause = cause
}

// capped keeps a deadline within Request.Max.
func (l *Lease) capped(deadline time.Duration) time.Duration {
	if l.end != 0 {
		return min(deadline, l.end)
	}
	return deadline
}

// Record is what the lease is now. Its deadline moves: see Options.Moved and Aged.
func (l *Lease) Record() Record {
	r := l.target.record()
	r.Token, r.Fence, r.Guard, r.End, r.Since = l.token, l.fence, l.guard, l.end, l.since
	l.mu.Lock()
	defer l.mu.Unlock()
	r.TTL, r.Deadline, r.Keep = l.ttl, l.deadline, l.kept
	if l.state == lost {
		r.Lost = l.reason
	}
	return r
}

// Lose loses the lease, for a reason that the caller knows: it is extended no more, and
// OnLost is called as for any other loss. The lock is released at the stated deadline, not
// before: the holder has at least the guard to stop. It does nothing to a lease that is
// over.
func (l *Lease) Lose(reason LostReason) { l.lose(reason) }

// GiveUp stops extending and marks the lease lost without a call of OnLost: the holder
// cannot be reached, but may still be at work. The lock is released at the stated deadline,
// not before.
func (l *Lease) GiveUp() {
	if l.finish(lost, LostQuorum, l.keeper.clock()) == nil {
		l.keeper.forget(l)
	}
}

// lose marks the lease lost and reports it. The timer calls it, and answers that leave no
// doubt.
func (l *Lease) lose(reason LostReason) {
	if l.keeper.closed.Load() || l.finish(lost, reason, l.keeper.clock()) != nil {
		return
	}
	l.keeper.forget(l)
	l.keeper.q.counts.lost.Add(1)
	if l.onLost != nil {
		l.onLost(l)
	}
}

// onTimer is what the lease's timer does. While the lease is held: say LOST, or
// wait on where it was extended meanwhile. At the deadline of a lost one: give
// back what nodes may still hold of it.
func (l *Lease) onTimer() {
	now := l.keeper.clock()
	l.mu.Lock()
	state, reason, left := l.state, l.reasonOf(), l.lostAt()-now
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
		l.keeper.q.abandon(&l.target, l.token, l.maybeOn)
	}
}

// Stopped releases at once what the nodes still hold of a lost lease: its holder has
// stopped, or is gone. Otherwise that is done at the stated deadline. It does nothing to
// any other lease, and does not wait for the nodes.
func (l *Lease) Stopped() {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == lost && now < l.releaseAt {
		l.releaseAt = now
		l.timer.Reset(0) // see ring
	}
}

// Left returns how long the nodes may still hold keys of a lost lease: until it is
// released. 0 if it is not lost, or no keys are left.
func (l *Lease) Left() time.Duration {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != lost || l.reason == LostForced && l.width() == 1 {
		return 0
	}
	return max(l.releaseAt-now, 0)
}

// lateShare of the ttl is how late an extension may be asked for before that is part of
// why the lease was lost.
const overdueShare = 10

// noteAsked notes when the nodes were asked to extend the lease, the first time since
// it was extended.
func (l *Lease) noteAsked(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.askedAt == 0 {
		l.askedAt = now
	}
}

// why is the cause of a loss at now. The caller holds mu.
func (l *Lease) why(now time.Duration) error {
	asked := l.askedAt
	if asked == 0 {
		asked = now
	}
	_, aged := l.cause.(*agedError)
	switch {
	case !aged && l.next != 0 && asked-l.next >= l.ttl/overdueShare:
		return &OverdueError{Name: l.name(), Took: l.tookTooLong(), Due: now - l.next, Asked: now - asked, Tries: int(l.tries.Load()), Err: l.cause}
	case l.cause == nil && l.askedAt != 0:
		return fmt.Errorf("%s: %w: the nodes were asked to extend it %v before, and too few have answered yet: they hang, and node_timeout is long for its ttl, or this host is overloaded, or was stopped",
			l.name(), ErrNoQuorum, (now - l.askedAt).Round(time.Millisecond))
	}
	return l.cause
}

// tookTooLong is how long the grant took, where the first extension was due before it. Of
// one that was adopted that was an earlier process's. The caller holds mu.
func (l *Lease) tookTooLong() time.Duration {
	if l.onConfirmed != nil || l.since < l.next {
		return 0
	}
	return l.since - (l.next - l.ttl/extendShare)
}
