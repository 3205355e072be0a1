package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A lease has one timer and no goroutine. Half way to the end of the lease the timer sends CHECK.
// The answer has the deadline, which the daemon moves forward, and sets the timer again. If the
// daemon hangs and does not answer, the timer ends the lease, a guard before the last known
// deadline.

const (
	// minCheck is the shortest time before the daemon is asked again.
	minCheck = 10 * time.Millisecond
	// retryUnlock is the time between a refusal of a background UNLOCK and the next try.
	retryUnlock = time.Second
	// If a deadline differs from the end of WithMax by at most maxHoldTolerance plus a hundredth of
	// WithMax, it counts as that end: the daemon counts from before it asked the nodes.
	maxHoldTolerance = 20 * time.Millisecond
)

// setGrant sets the fields of a grant that never change.
func (l *Lease) setGrant(r *ipc.Response) {
	l.fence, l.slot = uint64(number(r, "fence")), int(number(r, "slot"))
}

// start makes a lease of a grant. It fails if the lease has already ended, because the process was
// stopped for long.
func (l *Lease) start(r *ipc.Response, o *ipc.Options) error {
	now := l.c.clock()
	l.c.mu.Lock()
	l.hasOwnGuard, l.guard, l.ttl = o.Has(ipc.OptGuard), o.Guard, o.TTL
	l.deadline = max(l.deadline, l.c.daemonClock.deadlineOf(r, now)) // a RESUME may have set it already
	l.daemonGuard = duration(r, "guard")
	l.setGuardLocked(duration(r, "ttl"))
	if o.Max > 0 && l.hold != HoldTTL {
		l.maxHoldEnd = now + o.Max - o.Max/100 - maxHoldTolerance
	}
	expired := l.cause == nil && l.contextEnd() <= now
	if l.cause == nil && !expired {
		tick := l.nextTickLocked(now)
		l.timer, l.tickDue = time.AfterFunc(tick, l.onTimer), now+tick // end stops it; onTimer does not block
	}
	l.c.mu.Unlock()
	if err := l.endedError(ipc.VerbLock); err != nil { // LOST came with the grant
		_ = l.beginUnlock() // returns err again; no caller works under the lease
		return err
	}
	if !expired {
		return nil
	}
	if l.isTakenElsewhere {
		l.endWithoutUnlock(l.expiredError())
	} else {
		l.unlockInBackground()
	}
	return l.expiredError()
}

// setGuardLocked sets the guard to a fifth of the ttl, unless WithGuard set it. If no answer has given
// the lease as much time as the requested ttl, the guard is a fifth of the longest time given. A
// bound on the holding time (WithMax, the daemon's max_hold) has this effect from the start: a
// fifth of the requested ttl could be all of the time. The caller holds mu.
//
// If another program took the lease or changed its ttl (redlock extend), the guard is the one that
// the daemon's answers report.
func (l *Lease) setGuardLocked(validity time.Duration) {
	l.longestValidity = max(l.longestValidity, validity)
	switch {
	case l.isTakenElsewhere && l.daemonGuard > 0:
		l.guard = l.daemonGuard
	case !l.hasOwnGuard:
		l.guard = min(cmp.Or(l.daemonGuard, cmp.Or(l.ttl, l.longestValidity)/5), l.longestValidity/5)
	}
}

func (l *Lease) contextEnd() time.Duration { return l.deadline - l.guard }

// nextTickLocked returns when the timer fires next. The caller holds mu.
//
// The timer fires after half of the remaining time even if no CHECK is due (with HoldTTL, or when
// one is in progress): it does not run while the host is suspended.
func (l *Lease) nextTickLocked(now time.Duration) time.Duration {
	rest := l.contextEnd() - now
	if rest/2 >= minCheck {
		return rest / 2
	}
	return rest
}

// resetTimerLocked has the timer fire after d. The caller holds mu.
func (l *Lease) resetTimerLocked(now, d time.Duration) {
	l.tickDue = now + d
	l.timer.Reset(d)
}

// onTimer does what is due when the timer fires, and sets it for the next time.
func (l *Lease) onTimer() {
	c, now := l.c, l.c.clock()
	do := func() {}
	c.mu.Lock()
	switch {
	case l.release == releaseAtDeadline:
		l.release = releaseSent
		do = func() { c.spawn(l.postUnlock) }
	case l.cause != nil:
	case now < l.contextEnd():
		if l.hold != HoldTTL && !l.checking {
			l.checking = true
			do = l.postCheck
		}
		l.resetTimerLocked(now, l.nextTickLocked(now))
	default:
		do = l.timeUpLocked(now)
	}
	c.mu.Unlock()
	do()
}

// endIfDue ends the lease if its time has passed. An answer may be read late, before the timer has
// run.
func (l *Lease) endIfDue() {
	now := l.c.clock()
	do := func() {}
	l.c.mu.Lock()
	if l.cause == nil && now >= l.contextEnd() {
		do = l.timeUpLocked(now)
	}
	l.c.mu.Unlock()
	do()
}

const (
	// defaultLateCheck is the default of WithLateCheck. After a suspension of the host, the daemon needs
	// time, too.
	defaultLateCheck = 2 * time.Second
	// lateTolerance is the largest delay of a timer that does not mean that the process was stopped.
	lateTolerance = 250 * time.Millisecond
)

// timeUpLocked returns what to do at the end of a lease that is not known to be extended. If the timer is
// late, because this process was stopped, the daemon may have extended the lease all the time: CHECK
// asks it, and the lease ends if no answer comes in time. The caller holds mu.
func (l *Lease) timeUpLocked(now time.Duration) func() {
	switch late := now - l.tickDue; {
	case l.timer != nil && late >= lateTolerance && l.lateCheck > 0 && l.hold != HoldTTL:
		l.lateBy, l.lateUntil = late, now+l.lateCheck
		l.resetTimerLocked(now, l.lateCheck)
		return l.postCheck
	case now < l.lateUntil:
		return func() {}
	}
	return l.expire
}

// expire ends a lease that the daemon has not reported as lost.
func (l *Lease) expire() {
	l.end(l.expiredError(), !l.isTakenElsewhere)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.release != releaseAtDeadline {
		l.c.forgetLocked(l)
	}
}

// expiredError returns the cause if the lease ended without a report of the daemon.
func (l *Lease) expiredError() *Error {
	l.c.mu.Lock()
	lateBy, guard, atBound, why := l.lateBy, l.guard, l.maxHoldEnd > 0 && l.deadline >= l.maxHoldEnd, l.c.connErr
	l.c.mu.Unlock()
	text := "redlockd hangs, or could not extend it"
	switch {
	case lateBy > 0 && why == nil:
		return lostError(l.name, fmt.Sprintf("this process was stopped for %v (Ctrl-Z, SIGSTOP), and redlockd did not answer within %v after that", lateBy.Round(time.Millisecond), l.lateCheck), nil)
	case l.hold == HoldTTL:
		return lostError(l.name, fmt.Sprintf("its ttl ends in less than the guard of %v, and Extend was not called", guard), nil)
	case atBound:
		return lostError(l.name, fmt.Sprintf("its maximum holding time ends in less than the guard of %v", guard), nil)
	case why != nil:
		text = fmt.Sprintf("there is no connection: %v", why)
	}
	return lostError(l.name, fmt.Sprintf("not confirmed %v before its deadline: %s", guard, text), why)
}

// postCheck sends CHECK. If no permit is free, the timer tries again.
func (l *Lease) postCheck() {
	cl := l.c.calls.tryAcquire(ipc.VerbCheck)
	if cl == nil {
		l.retryCheck()
		return
	}
	cl.setLease(l)
	l.c.sendInBackground(cl)
}

func (l *Lease) retryCheck() {
	now := l.c.clock()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.checking = false
	if l.cause == nil && l.timer != nil && l.lateUntil == 0 {
		l.resetTimerLocked(now, max(0, l.nextTickLocked(now)))
	}
}

// handleReply handles the answer to CHECK, EXTEND or BEAT, or nil if there is none. It returns the
// caller's error. If the lease has ended here meanwhile, that is an error even if the daemon says
// OK: the client releases the lease anyway.
func (l *Lease) handleReply(cl *call, r *ipc.Response) error {
	switch {
	case r == nil:
		l.retryCheck()
		return nil
	case r.Kind == ipc.KindOK && cl.req.Verb == ipc.VerbBeat:
		return l.endedError(ipc.VerbBeat) // the answer has no deadline
	case r.Kind == ipc.KindOK:
		l.extendDeadline(r, cl.req.TTL)
		l.endIfDue()
		return l.endedError(cl.req.Verb)
	}
	err := cl.replyError()
	switch r.Code {
	case ipc.CodeLost:
		l.endByDaemon(r, err)
	case ipc.CodeNotHeld:
		l.endWithoutUnlock(l.unknownError(err))
	default:
		l.retryCheck()
	}
	return err
}

// unknownError returns the loss of a lease that the daemon does not know and that was not unlocked
// here.
func (l *Lease) unknownError(err error) error {
	return lostError(l.name, "the daemon no longer knows it", err)
}

// extendDeadline sets a later deadline, and the ttl if it was changed. Answers can overtake each
// other, so an earlier deadline is older. A lease that has ended stays ended; the client releases
// it at its deadline at the latest.
func (l *Lease) extendDeadline(r *ipc.Response, ttl time.Duration) {
	now := l.c.clock()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.checking = false
	if l.cause != nil {
		return
	}
	l.deadline = max(l.deadline, l.c.daemonClock.deadlineOf(r, now))
	if ttl > 0 {
		l.ttl, l.longestValidity = ttl, 0
	}
	l.daemonGuard = duration(r, "guard")
	l.setGuardLocked(duration(r, "ttl"))
	if now < l.contextEnd() {
		l.lateUntil, l.lateBy = 0, 0
		if l.timer != nil { // nil: it was resumed before Lock returned
			l.resetTimerLocked(now, l.nextTickLocked(now))
		}
	}
}

// end ends the lease with cause. Only the first call counts. With pending, the daemon may still
// extend the lease. It is then unlocked at the deadline, and not before, because its holder may
// still be stopping. (The daemon does not extend a detached lease, unless it refused RESUME: see
// resumeGranted and maybeKept.)
func (l *Lease) end(cause error, pending bool) {
	l.c.mu.Lock()
	if l.cause != nil {
		l.c.mu.Unlock()
		return
	}
	l.cause = cause
	if l.timer != nil { // nil: LOST came with the grant
		l.timer.Stop()
	}
	if pending && (l.maybeKept || !l.isDetached()) {
		l.releaseLaterLocked()
	}
	cancel := l.cancel
	l.c.sendAfterResumeLocked(l)
	l.c.unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// releaseLaterLocked has the timer unlock the lease at its deadline. The caller holds mu.
func (l *Lease) releaseLaterLocked() {
	l.release = releaseAtDeadline
	if l.timer != nil { // nil: Lock has not returned yet, and start unlocks it
		l.timer.Reset(max(0, l.deadline-l.c.clock()))
	}
}

// endByDaemon ends a lease that the daemon reports as lost.
func (l *Lease) endByDaemon(r *ipc.Response, cause error) {
	l.c.mu.Lock()
	if len(l.names) > 1 && text(r, "reason") == "forced" && l.release != releaseSent {
		l.release = releaseOnUnlock
	}
	l.c.mu.Unlock()
	l.endWithoutUnlock(cause)
}

// endWithoutUnlock ends a lease that the daemon no longer keeps: there is nothing to unlock.
func (l *Lease) endWithoutUnlock(cause error) {
	l.end(cause, false)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.release == releaseAtDeadline {
		l.release = releaseNone // the timer then does nothing
	}
	l.c.forgetLocked(l)
}

// beginUnlock ends the lease. It returns an error if there is nothing to unlock.
func (l *Lease) beginUnlock() error {
	l.c.mu.Lock()
	before, cause := l.release, l.cause
	l.release = releaseSent
	l.c.mu.Unlock()
	switch {
	case cause != nil && cause != ErrUnlocked:
		if before == releaseAtDeadline {
			l.unlockInBackground() // the holder has stopped, so do not wait for the deadline
		} else if before == releaseOnUnlock {
			l.c.spawn(l.postUnlock) // the same
		}
		return cause
	case before == releaseSent:
		return notHeldError(ipc.VerbUnlock, l.name)
	}
	l.end(ErrUnlocked, false)
	return nil
}

// unlocked handles the answer to UNLOCK, or nil if there is none. It returns the caller's error. If
// UNLOCK was sent twice and the daemon does not know the lease, the first one released it.
func (l *Lease) unlocked(cl *call, r *ipc.Response) error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	sentBefore := cl.maybeDone || l.unlockMaybeDone
	switch {
	case r == nil || r.Kind == ipc.KindOK, r.Code == ipc.CodeNotHeld && sentBefore:
		l.c.forgetLocked(l)
		return nil
	case r.Code == ipc.CodeNotHeld && !l.isTakenElsewhere:
		l.c.forgetLocked(l)
		return l.unknownError(cl.replyError())
	case r.Code == ipc.CodeLost || r.Code == ipc.CodeNotHeld:
		l.c.forgetLocked(l)
	default: // Unlock can be called again
		l.release, l.unlockMaybeDone = releaseNone, sentBefore
	}
	return cl.replyError()
}

// handleUnlockReply handles the answer to an UNLOCK that has no caller. After a refusal (such as
// ErrLimit) the timer tries again.
func (l *Lease) handleUnlockReply(cl *call, r *ipc.Response) {
	_ = l.unlocked(cl, r) // no caller gets the error
	l.c.mu.Lock()
	l.releasing = false
	if l.release != releaseSent {
		l.release = releaseAtDeadline
		if l.timer == nil { // a grant that came too late to be used
			l.timer = time.AfterFunc(retryUnlock, l.onTimer)
		} else {
			l.timer.Reset(retryUnlock)
		}
	}
	l.c.mu.Unlock()
}

// unlockInBackground unlocks a lease that is no longer used.
func (l *Lease) unlockInBackground() {
	l.c.mu.Lock()
	l.release, l.releasing = releaseSent, true
	l.c.mu.Unlock()
	l.end(ErrUnlocked, false)
	l.c.spawn(l.postUnlock)
}

// postUnlock waits for a permit, and sends UNLOCK. The end of the connection frees a permit at the
// latest.
func (l *Lease) postUnlock() {
	cl, err := l.begin(context.Background(), ipc.VerbUnlock)
	if err == nil {
		l.c.sendInBackground(cl)
	}
}
