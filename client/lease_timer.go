package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// How a lease lives. It has one timer and no goroutine. Half way to its end the
// timer asks the daemon for the deadline, which moves on as the daemon extends
// the lease; the answer sets the timer anew. Where no answer comes, the daemon
// being hung, the timer ends the lease, a guard before the last known deadline.

const (
	// minCheck is the shortest time after which the daemon is asked again.
	minCheck = 10 * time.Millisecond
	// retryUnlock is how long after a refusal the background tries to unlock again.
	retryUnlock = time.Second
	// atMax is how far, beside a hundredth, a deadline may be from the end of WithMax and
	// be it: the daemon counts from before it asked the nodes.
	maxHoldTolerance = 20 * time.Millisecond
)

// granted learns from a grant what does not change.
func (l *Lease) setGrant(r *ipc.Response) { l.fence, l.slot = fenceOf(r), int(number(r, "slot")) }

// start makes a lease of a grant. It fails if that is over already: the process
// may have been stopped for long.
func (l *Lease) start(r *ipc.Response, o *ipc.Options) error {
	if l.startTimer(r, o) {
		err := l.endedError(ipc.VerbLock)
		if err != nil { // LOST came with the grant
			_ = l.beginUnlock() // which says err; nobody is at work
		}
		return err
	}
	if l.found {
		l.endWithoutUnlock(l.expiredError())
	} else {
		l.unlockInBackground()
	}
	return l.expiredError()
}

// startTimer reports false if it is too late for that.
func (l *Lease) startTimer(r *ipc.Response, o *ipc.Options) bool {
	now := l.c.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guardGiven, l.guard, l.ttl = o.Has(ipc.OptGuard), o.Guard, o.TTL
	l.deadline = max(l.deadline, deadlineOf(r, now)) // it may have been resumed already
	l.daemonGuard = duration(r, "guard")
	l.setGuard(duration(r, "ttl"))
	if o.Max > 0 && l.hold != HoldTTL {
		l.maxHoldEnd = now + o.Max - o.Max/100 - maxHoldTolerance
	}
	if l.cause != nil {
		return true
	}
	if l.loseAt() <= now {
		return false
	}
	l.timer = time.AfterFunc(l.nextTick(now), l.onTimer)
	return true
}

// setGuard has the guard be a fifth of the ttl, unless it was given: of that which was
// asked for, or of the longest that the lease was said to stand, where that is less:
// with a bound on the holding time (WithMax, the daemon's max_hold) it is for less
// from the start, and a fifth of what was asked for could be all of it. It needs mu.
//
// Where the ttl was changed by somebody else (redlock extend), it is the daemon's guard,
// which its answers tell; so it is with a lease that somebody else took.
func (l *Lease) setGuard(stands time.Duration) {
	l.longestValidity = max(l.longestValidity, stands)
	switch {
	case l.found && l.daemonGuard > 0:
		l.guard = l.daemonGuard
	case !l.guardGiven:
		l.guard = min(cmp.Or(l.daemonGuard, cmp.Or(l.ttl, l.longestValidity)/5), l.longestValidity/5)
	}
}

func (l *Lease) loseAt() time.Duration { return l.deadline - l.guard }

// next is how long the timer has to run, and settles what for. It needs mu.
//
// It is half of what is left also where nothing is to be asked then (its ttl keeps the lease,
// or the daemon was asked before): a timer stands still while the host is suspended.
func (l *Lease) nextTick(now time.Duration) time.Duration {
	rest := l.loseAt() - now
	half := rest/2 >= minCheck
	l.checkNext = half && l.hold != HoldTTL && !l.checking
	if half {
		return rest / 2
	}
	return rest
}

// tick is what the timer runs.
func (l *Lease) onTimer() {
	switch l.nextAction(l.c.clock()) {
	case doCheck:
		l.postCheck()
	case doEnd:
		l.expire()
	case doUnlock:
		l.c.spawn(l.postUnlock)
	}
}

// endIfDue is for an answer that may have been read late: the timer has not run yet.
func (l *Lease) endIfDue() {
	now := l.c.clock()
	l.mu.Lock()
	due := l.cause == nil && now >= l.loseAt()
	l.mu.Unlock()
	if due {
		l.expire()
	}
}

// expire ends a lease that nobody has said is lost.
func (l *Lease) expire() {
	if l.end(l.expiredError(), !l.found); !l.hasPendingUnlock() {
		l.c.forget(l)
	}
}

// What a timer that ran out is for.
type timerAction int

const (
	doNothing timerAction = iota
	doCheck
	doEnd
	doUnlock
)

// due settles what is to be done now, and sets the timer for what comes next.
func (l *Lease) nextAction(now time.Duration) timerAction {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.unlockPending:
		l.unlockPending, l.unlocking = false, true
		return doUnlock
	case l.cause != nil:
		return doNothing
	case now >= l.loseAt():
		return doEnd
	}
	check := l.checkNext
	l.checking = l.checking || check
	l.timer.Reset(l.nextTick(now))
	if check {
		return doCheck
	}
	return doNothing
}

// expired is the cause of an end that nobody told of.
func (l *Lease) expiredError() *Error {
	l.mu.Lock()
	guard, atBound := l.guard, l.maxHoldEnd > 0 && l.deadline >= l.maxHoldEnd
	l.mu.Unlock()
	switch {
	case l.hold == HoldTTL:
		return lostError(l.name, fmt.Sprintf("its ttl is over but for the guard of %v, and Extend was not called", guard), nil)
	case atBound:
		return lostError(l.name, fmt.Sprintf("its longest holding time is over but for the guard of %v", guard), nil)
	}
	if why := l.c.Err(); why != nil {
		return lostError(l.name, fmt.Sprintf("nobody confirmed it until %v before its deadline: there is no connection: %v", guard, why), why)
	}
	return lostError(l.name, fmt.Sprintf("nobody confirmed it until %v before its deadline: redlockd hangs, or could not extend it, or this process was stopped meanwhile (Ctrl-Z, SIGSTOP)", guard), nil)
}

// postCheck asks for the deadline. Where there is no place for it among the
// requests in flight, the timer tries again.
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checking = false
	if l.cause == nil && l.timer != nil {
		l.timer.Reset(max(0, l.nextTick(now)))
	}
}

// told learns from the answer to CHECK, EXTEND or BEAT, nil where there is none,
// and is the caller's error: also where the daemon says OK of a lease that has ended here
// meanwhile, which is given back whatever it says.
func (l *Lease) handleReply(cl *call, r *ipc.Response) error {
	switch {
	case r == nil:
		l.retryCheck()
		return nil
	case r.Kind == ipc.KindOK && cl.req.Verb == ipc.VerbBeat:
		return l.endedError(ipc.VerbBeat) // it tells no deadline
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

// unknown is the loss of a lease that is NOTHELD, and was not unlocked here.
func (l *Lease) unknownError(err error) error {
	return lostError(l.name, "the daemon does not know it any more", err)
}

// moveOn learns a later deadline, and the ttl if that was changed. Answers can
// overtake each other: an earlier deadline is an older one. A lease that has
// ended stays ended: its deadline is when it is given back at the latest.
func (l *Lease) extendDeadline(r *ipc.Response, ttl time.Duration) {
	now := l.c.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checking = false
	if l.cause != nil {
		return
	}
	l.deadline = max(l.deadline, deadlineOf(r, now))
	if ttl > 0 {
		l.ttl, l.longestValidity = ttl, 0
	}
	l.daemonGuard = duration(r, "guard")
	l.setGuard(duration(r, "ttl"))
	if l.timer != nil { // nil: it was resumed before its grant was taken
		l.timer.Reset(max(0, l.nextTick(now)))
	}
}

// end ends the lease with cause; the first end counts. With owed the daemon may
// think that it still stands, and go on extending it: it is unlocked when the
// deadline is reached, and not before, as its holder may still be stopping. (Adrift nobody
// extends it, unless RESUME was refused: see takenOver, mayBeKept.)
func (l *Lease) end(cause error, owed bool) {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return
	}
	l.cause, l.unlockPending = cause, owed && (l.maybeKept || !l.detached.Load())
	l.stopTimer()
	if l.unlockPending {
		l.timer.Reset(max(0, l.deadline-l.c.clock()))
	}
	cancel := l.cancel
	l.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	l.lossUnwatched.Store(false)
	l.c.sendAfterResume(l)
}

// owes tells whether it is to be unlocked yet.
func (l *Lease) hasPendingUnlock() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unlockPending
}

// stopTimer needs mu.
func (l *Lease) stopTimer() {
	if l.timer != nil { // nil: LOST came with the grant
		l.timer.Stop()
	}
}

// taken ends a lease that the daemon says is lost.
func (l *Lease) endByDaemon(r *ipc.Response, cause error) {
	l.mu.Lock()
	l.restForced = len(l.names) > 1 && text(r, "reason") == "forced"
	l.mu.Unlock()
	l.endWithoutUnlock(cause)
}

// drop ends a lease that the daemon keeps no more: nothing is owed.
func (l *Lease) endWithoutUnlock(cause error) {
	l.end(cause, false)
	l.mu.Lock()
	l.unlockPending = false
	l.stopTimer()
	l.mu.Unlock()
	l.c.forget(l)
}

// beginUnlock ends the lease, and errs if there is nothing to unlock.
func (l *Lease) beginUnlock() error {
	l.mu.Lock()
	again, owed, rest := l.unlocking, l.unlockPending, l.restForced
	cause := l.cause
	l.unlocking, l.unlockPending, l.restForced = true, false, false
	l.mu.Unlock()
	switch {
	case cause != nil && cause != ErrUnlocked:
		if owed {
			l.unlockInBackground() // its holder has stopped: no need to wait for the deadline
		} else if rest {
			l.c.spawn(l.postUnlock) // likewise
		}
		return cause
	case again:
		return notHeldError(ipc.VerbUnlock, l.name)
	}
	l.end(ErrUnlocked, false)
	return nil
}

// unlocked learns from the answer to UNLOCK, nil where there is none, and is the
// caller's error. What was sent twice, and is not held, the first has released.
func (l *Lease) unlocked(cl *call, r *ipc.Response) error {
	switch {
	case r == nil || r.Kind == ipc.KindOK, r.Code == ipc.CodeNotHeld && l.sentBefore(cl):
		l.c.forget(l)
		return nil
	case r.Code == ipc.CodeNotHeld && !l.found:
		l.c.forget(l)
		return l.unknownError(cl.replyError())
	case r.Code == ipc.CodeLost || r.Code == ipc.CodeNotHeld:
		l.c.forget(l)
		return cl.replyError()
	}
	l.mayUnlockAgain(cl.resent)
	return cl.replyError()
}

// mayUnlockAgain: an UNLOCK has failed. In doubt it may have been done.
func (l *Lease) mayUnlockAgain(doubt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlocking = false
	l.unlockMaybeDone = l.unlockMaybeDone || doubt
}

// sentBefore tells whether an UNLOCK before this one may have been done.
func (l *Lease) sentBefore(cl *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cl.resent || l.unlockMaybeDone
}

// settle learns from the answer to an UNLOCK that nobody waits for: after a
// refusal (ErrLimit, say) nobody but the timer can try again.
func (l *Lease) handleUnlockReply(cl *call, r *ipc.Response) {
	_ = l.unlocked(cl, r) // for nobody
	if l.setReleasing(false) {
		l.c.releaseDone()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlocking {
		return
	}
	l.unlockPending = true
	if l.timer == nil { // a grant that came too late to be used
		l.timer = time.AfterFunc(retryUnlock, l.onTimer)
		return
	}
	l.timer.Reset(retryUnlock)
}

// giveBack unlocks a lease that nobody wants any more, in the background.
func (l *Lease) unlockInBackground() {
	l.mu.Lock()
	l.unlocking = true
	l.mu.Unlock()
	if l.setReleasing(true) {
		l.c.releaseStarted()
	}
	l.end(ErrUnlocked, false)
	l.c.spawn(l.postUnlock)
}

// setGiving tells whether it was otherwise before.
func (l *Lease) setReleasing(is bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news = l.releasing != is
	l.releasing = is
	return news
}

// postUnlock waits for a place at most until the connection ends, which frees all.
func (l *Lease) postUnlock() {
	cl, err := l.begin(context.Background(), ipc.VerbUnlock)
	if err == nil {
		l.c.sendInBackground(cl)
	}
}
