package client

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

const (
	// minCheck is the shortest time before the daemon is asked again.
	minCheck = 10 * time.Millisecond
	// retryUnlock is the time between a refusal of a background UNLOCK and the next try.
	retryUnlock = time.Second
	// retryResume is the time between a temporary refusal (such as NOQUORUM) and the next RESUME.
	retryResume = 250 * time.Millisecond
	// If a deadline differs from the end of WithMax by at most maxHoldTolerance plus a hundredth of
	// WithMax, it counts as that end: the daemon counts from before it asked the nodes.
	maxHoldTolerance = 20 * time.Millisecond
	// defaultLateCheck is the default of WithLateCheck. After a suspension of the host, the daemon needs
	// time, too.
	defaultLateCheck = 2 * time.Second
	// lateTolerance is the largest delay of a timer that does not mean that the process was stopped.
	lateTolerance = 250 * time.Millisecond
)

// leaseState is the state of a lease.
type leaseState uint8

const (
	leaseNew        leaseState = iota // not granted yet
	leaseHeld                         // the daemon keeps it
	leaseUnwatched                    // HoldPID: its connection has ended, so none would report its loss yet
	leaseDetached                     // HoldConn: its connection has ended, so nobody extends it, until it is resumed
	leaseKept                         // RESUME was refused for now, but the daemon may extend it for this connection
	leaseStopping                     // it has ended here, but the daemon may keep it: unlock it at the deadline, because its holder may still be stopping
	leaseEnded                        // it was lost, and the daemon does not keep it as far as the client knows
	leaseUnreleased                   // its UNLOCK failed, and Unlock can be called again
	leaseUnlocking                    // its UNLOCK is in progress
	leaseOver                         // its holder has stopped, and there is nothing to unlock
	leaseStates
)

func (s leaseState) isHeld() bool { return leaseHeld <= s && s <= leaseKept }

// isDetached reports whether the daemon may not know the lease before it is resumed.
func (s leaseState) isDetached() bool { return s == leaseDetached || s == leaseKept }

func (s leaseState) needsResume() bool { return leaseUnwatched <= s && s <= leaseKept }

// leaseEvent is what happens to a lease.
type leaseEvent uint8

const (
	connectionEnded  leaseEvent = iota // its connection has ended, with HoldConn
	watchEnded                         // the same, with HoldPID
	wasResumed                         // RESUME was answered with OK
	resumeRefused                      // RESUME was refused for now; the daemon may have it nevertheless
	timeIsUp                           // its guard before the deadline has begun
	wasLost                            // the daemon, or the end of the connection, has ended it
	wasForced                          // FORCE revoked one of its names; the daemon keeps the others until the holder has stopped
	wasDropped                         // it was granted, and nobody uses it
	deadlinePassed                     // or it is time for the next UNLOCK
	unlockCalled                       // by its holder
	holderStopped                      // the same, when it had ended before
	unlockAnswered                     // the daemon does not keep it any more
	unlockRefused                      // in the background
	unlockUnanswered                   // or refused, and its holder can call Unlock again
	leaseEvents
)

// steps has the state after each event. An event that is missing for a state changes nothing: a lease ends
// once. An UNLOCK that is in progress is not sent twice, because the second one could overtake the first,
// which would report a loss.
var steps = [leaseEvents][leaseStates]leaseState{
	connectionEnded: {leaseHeld: leaseDetached, leaseKept: leaseDetached},
	watchEnded:      {leaseHeld: leaseUnwatched},
	wasResumed: {
		leaseUnwatched: leaseHeld, leaseDetached: leaseHeld, leaseKept: leaseHeld,
		leaseEnded: leaseStopping, leaseUnreleased: leaseUnlocking, leaseOver: leaseUnlocking, // it has ended meanwhile
	},
	resumeRefused: {
		leaseUnwatched: leaseHeld, // the daemon reports a loss nevertheless, or CHECK does
		leaseDetached:  leaseKept,
		leaseEnded:     leaseStopping, leaseUnreleased: leaseUnlocking, leaseOver: leaseUnlocking,
	},
	timeIsUp: {leaseHeld: leaseStopping, leaseUnwatched: leaseStopping, leaseDetached: leaseEnded, leaseKept: leaseStopping},
	wasLost:  {leaseHeld: leaseEnded, leaseUnwatched: leaseEnded, leaseDetached: leaseEnded, leaseKept: leaseEnded, leaseStopping: leaseEnded},
	wasForced: {
		leaseHeld: leaseStopping, leaseUnwatched: leaseStopping, leaseDetached: leaseStopping, leaseKept: leaseStopping,
		leaseEnded: leaseStopping, leaseUnreleased: leaseStopping,
	},
	wasDropped:     {leaseHeld: leaseUnlocking, leaseUnwatched: leaseUnlocking, leaseDetached: leaseUnlocking, leaseKept: leaseUnlocking},
	deadlinePassed: {leaseStopping: leaseUnlocking},
	unlockCalled: {
		leaseHeld: leaseUnlocking, leaseUnwatched: leaseUnlocking, leaseDetached: leaseUnlocking, leaseKept: leaseUnlocking,
		leaseStopping: leaseUnlocking, leaseEnded: leaseUnlocking, leaseUnreleased: leaseUnlocking,
	},
	holderStopped:    {leaseStopping: leaseUnlocking, leaseEnded: leaseOver},
	unlockAnswered:   {leaseUnlocking: leaseOver},
	unlockRefused:    {leaseUnlocking: leaseStopping},
	unlockUnanswered: {leaseUnlocking: leaseUnreleased},
}

// apply changes the state of a lease, and does what the new state needs. If the lease is held no more, cause
// is why. It is the only place where a state changes after the grant.
func (c *core) apply(l *Lease, event leaseEvent, cause error) {
	from, to := l.state, steps[event][l.state]
	if to == leaseNew {
		return
	}
	l.state = to
	if !to.isHeld() && l.cause == nil {
		l.cause = cause
		if cancel := l.cancel; cancel != nil {
			c.effects.ended = append(c.effects.ended, func() { cancel(cause) })
		}
	}
	if from.isDetached() && !to.isDetached() && c.link != 0 {
		// The calls that waited for that are sent. Without a connection, the next one sends them.
		for cl := range c.flight.calls() {
			if cl.lease == l && !cl.sent && cl.shouldSend() {
				c.send(cl)
			}
		}
	}
	switch to {
	case leaseStopping:
		c.timers.start(&l.timer, l.deadline)
	case leaseUnlocking:
		c.timers.stop(&l.timer)
		if event != unlockCalled {
			c.background(newCallAbout(l, ipc.VerbUnlock))
		}
	case leaseEnded, leaseUnreleased, leaseOver:
		c.timers.stop(&l.timer)
		if c.leases[l.id] == l { // another one may have been found since
			delete(c.leases, l.id)
		}
	}
}

func (c *core) addLease(l *Lease) {
	c.leases[l.id] = l
	l.timer.run = func() { c.tick(l) }
}

// grant makes a lease of an answer.
func (c *core) grant(l *Lease, r *ipc.Response) {
	l.id, l.state = leaseOf(r), leaseHeld
	l.fence, l.slot = uint64(number(r, "fence")), int(number(r, "slot"))
	c.addLease(l)
	c.setDeadline(l, r)
}

// granted handles the grant of a LOCK. It fails if the lease has already ended, because the process was
// stopped for long.
func (c *core) granted(cl *call, r *ipc.Response) error {
	l := cl.lease
	c.grant(l, r)
	if most := cl.req.Max; most > 0 && l.hold != HoldTTL {
		l.maxHoldEnd = c.now + most - most/100 - maxHoldTolerance
	}
	switch {
	case c.isClosed && l.hold == HoldConn:
		c.apply(l, wasLost, lostError(l.name, "", ErrClosed))
		return l.cause
	case cl.state == callAbandoned:
		c.apply(l, wasDropped, ErrUnlocked)
	case l.contextEnd() <= c.now:
		err := c.expired(l)
		c.apply(l, wasDropped, ErrUnlocked)
		return err
	default:
		c.arm(l)
	}
	return nil
}

// taken is called when Lock is about to return a lease. It fails if the lease has ended meanwhile: LOST
// came with the grant, or the process was stopped. No caller works under the lease then.
func (c *core) taken(l *Lease) error {
	l.isTaken = true
	if l.cause == nil && c.now >= l.contextEnd() {
		c.apply(l, timeIsUp, c.expired(l))
	}
	if l.cause != nil {
		c.apply(l, holderStopped, nil)
	}
	return l.endedError(ipc.VerbLock)
}

// found handles the answer to a CHECK for a lease that was granted to another connection. It returns a
// lease of this Client unchanged.
func (c *core) found(cl *call, r *ipc.Response) error {
	id := leaseOf(r)
	own := c.leases[id]
	switch {
	case id == "":
		return invalidError(cl.op(), cl.lockName, ipc.CodeInternal, errFields.Error())
	case own != nil:
		cl.lease = own // Lock may not have returned yet
		c.extend(own, r, 0)
		c.endIfDue(own)
		return own.endedError(ipc.VerbCheck)
	case cl.state == callAbandoned:
		return nil
	}
	l := cl.lease
	l.isTaken = true
	c.grant(l, r)
	if l.contextEnd() <= c.now {
		c.expire(l)
		return l.cause
	}
	c.arm(l)
	return nil
}

// setDeadline sets the deadline of an answer, and the guard: a fifth of the ttl, unless WithGuard set it. If no
// answer has given the lease as much time as the requested ttl, the guard is a fifth of the longest time
// given. A bound on the holding time (WithMax, the daemon's max_hold) has this effect from the start: a
// fifth of the requested ttl could be all of the time.
//
// If another program took the lease or changed its ttl (redlock extend), the guard is the one that the
// daemon's answers report.
//
// Answers can overtake each other, so an earlier deadline is older.
func (c *core) setDeadline(l *Lease, r *ipc.Response) {
	l.deadline = max(l.deadline, c.daemonClock.deadlineOf(r, c.now))
	l.longestValidity = max(l.longestValidity, duration(r, "ttl"))
	switch daemons := duration(r, "guard"); {
	case l.isFound && daemons > 0:
		l.guard = daemons
	case !l.hasOwnGuard:
		l.guard = min(cmp.Or(daemons, cmp.Or(l.ttl, l.longestValidity)/5), l.longestValidity/5)
	}
}

// extend sets a later deadline, and the ttl if it was changed. A lease that has ended stays ended; the
// client releases it at its deadline at the latest.
func (c *core) extend(l *Lease, r *ipc.Response, ttl time.Duration) {
	l.checking = false
	if l.cause != nil {
		return
	}
	if ttl > 0 {
		l.ttl, l.longestValidity = ttl, 0
	}
	c.setDeadline(l, r)
	if c.now < l.contextEnd() {
		l.lateUntil, l.lateBy = 0, 0
		c.arm(l)
	}
}

// arm sets the timer to half of the time that is left, even if no CHECK is due then (with HoldTTL, or when
// one is in progress): it does not run while the host is suspended.
func (c *core) arm(l *Lease) {
	rest := l.contextEnd() - c.now
	if rest/2 >= minCheck {
		rest /= 2
	}
	c.timers.start(&l.timer, c.now+rest)
}

// tick does what is due when the timer of a lease fires. Half way to the end of the lease it sends CHECK.
// The answer has the deadline, which the daemon moves forward, and sets the timer again. If the daemon
// hangs and does not answer, the timer ends the lease, a guard before the last known deadline.
func (c *core) tick(l *Lease) {
	switch {
	case !l.state.isHeld():
		c.apply(l, deadlinePassed, nil)
	case c.now < l.contextEnd():
		if l.hold != HoldTTL && !l.checking {
			c.check(l)
		}
		c.arm(l)
	default:
		c.timeUp(l)
	}
}

// check asks for the deadline. If there is no room, the timer tries again.
func (c *core) check(l *Lease) {
	if c.busy[roomOther] < maxInFlight[roomOther] {
		l.checking = true
		c.background(newCallAbout(l, ipc.VerbCheck))
	}
}

// endIfDue ends a lease if its time has passed. An answer may be read late, before the timer has run.
func (c *core) endIfDue(l *Lease) {
	if l.cause == nil && c.now >= l.contextEnd() {
		c.timeUp(l)
	}
}

// timeUp is called at the end of a lease that is not known to be extended. If the timer is late, because this
// process was stopped, the daemon may have extended the lease all the time: CHECK asks it, and the lease
// ends if no answer comes in time.
func (c *core) timeUp(l *Lease) {
	switch late := c.now - l.timer.when; {
	case late >= lateTolerance && l.lateCheck > 0 && l.hold != HoldTTL:
		l.lateBy, l.lateUntil = late, c.now+l.lateCheck
		c.timers.start(&l.timer, l.lateUntil)
		c.check(l)
	case c.now >= l.lateUntil:
		c.expire(l)
	}
}

// expire ends a lease that the daemon has not reported as lost. The daemon may still extend it. A lease that
// another connection took is not this client's to unlock.
func (c *core) expire(l *Lease) {
	event := timeIsUp
	if l.isFound {
		event = wasLost
	}
	c.apply(l, event, c.expired(l))
}

// expired returns the cause if the lease ended without a report of the daemon.
func (c *core) expired(l *Lease) *Error {
	text := "redlockd hangs, or could not extend it"
	switch {
	case l.lateBy > 0 && c.why == nil:
		return lostError(l.name, fmt.Sprintf("this process was stopped for %v (Ctrl-Z, SIGSTOP), and redlockd did not answer within %v after that", l.lateBy.Round(time.Millisecond), l.lateCheck), nil)
	case l.hold == HoldTTL:
		return lostError(l.name, fmt.Sprintf("its ttl ends in less than the guard of %v, and Extend was not called", l.guard), nil)
	case l.maxHoldEnd > 0 && l.deadline >= l.maxHoldEnd:
		return lostError(l.name, fmt.Sprintf("its maximum holding time ends in less than the guard of %v", l.guard), nil)
	case c.why != nil:
		text = fmt.Sprintf("there is no connection: %v", c.why)
	}
	return lostError(l.name, fmt.Sprintf("not confirmed %v before its deadline: %s", l.guard, text), c.why)
}

// lostByDaemon ends a lease that the daemon reports as lost.
func (c *core) lostByDaemon(l *Lease, r *ipc.Response, cause error) {
	event := wasLost
	if len(l.names) > 1 && text(r, "reason") == "forced" {
		event = wasForced
	}
	c.apply(l, event, cause)
}

// checked handles the answer to CHECK, EXTEND or BEAT, and returns the caller's error. If the lease has
// ended here meanwhile, that is an error even if the daemon says OK: the client releases the lease anyway.
func (c *core) checked(cl *call, r *ipc.Response) error {
	l := cl.lease
	if r.Kind == ipc.KindOK {
		if cl.req.Verb != ipc.VerbBeat { // its answer has no deadline
			c.extend(l, r, cl.req.TTL)
			c.endIfDue(l)
		}
		return l.endedError(cl.req.Verb)
	}
	err := cl.refusal(r)
	l.checking = false
	switch r.Code {
	case ipc.CodeLost:
		c.lostByDaemon(l, r, err)
	case ipc.CodeNotHeld:
		c.apply(l, wasLost, unknownError(l, err))
	}
	return err
}

// unknownError returns the loss of a lease that the daemon does not know and that was not unlocked here.
func unknownError(l *Lease, err error) error {
	return lostError(l.name, "the daemon no longer knows it", err)
}

// release begins the UNLOCK of a holder. It fails if there is nothing to unlock.
func (c *core) release(cl *call) error {
	l := cl.lease
	if err := l.endedError(ipc.VerbUnlock); l.cause != nil && (l.cause != ErrUnlocked || l.state == leaseUnlocking || l.state == leaseOver) {
		c.apply(l, holderStopped, nil)
		return err
	}
	c.apply(l, unlockCalled, ErrUnlocked)
	c.begin(cl)
	return nil
}

// unlocked handles the answer to UNLOCK, or nil if there is none. It returns the caller's error. If UNLOCK
// was sent twice and the daemon does not know the lease, the first one released it.
func (c *core) unlocked(cl *call, r *ipc.Response) error {
	l := cl.lease
	sentBefore := cl.maybeDone || l.unlockMaybeDone
	switch {
	case r == nil && cl.state == callAbandoned:
		c.apply(l, unlockAnswered, nil)
		return nil
	case r == nil:
		l.unlockMaybeDone = sentBefore
		c.apply(l, unlockUnanswered, nil)
		return nil
	case r.Kind == ipc.KindOK, r.Code == ipc.CodeNotHeld && sentBefore:
		c.apply(l, unlockAnswered, nil)
		return nil
	}
	err := cl.refusal(r)
	switch {
	case r.Code == ipc.CodeNotHeld && !l.isFound:
		c.apply(l, unlockAnswered, nil)
		return unknownError(l, err)
	case r.Code == ipc.CodeLost || r.Code == ipc.CodeNotHeld:
		c.apply(l, unlockAnswered, nil)
	case cl.state == callAbandoned:
		l.unlockMaybeDone = sentBefore
		c.apply(l, unlockRefused, nil)
		c.timers.start(&l.timer, c.now+retryUnlock)
	default:
		l.unlockMaybeDone = sentBefore
		c.apply(l, unlockUnanswered, nil)
	}
	return err
}

// resume sends RESUME without a caller.
func (c *core) resume(l *Lease) {
	cl := newCallAbout(l, ipc.VerbResume)
	if cl.req.Names = l.names; l.names == nil {
		cl.req.Names = []string{l.name}
	}
	if l.hold != HoldPID {
		cl.req.Owner = l.owner
		cl.req.Set |= ipc.OptOwner
	}
	c.background(cl)
}

// resumeAnswered handles the answer to RESUME.
func (c *core) resumeAnswered(cl *call, r *ipc.Response) {
	l := cl.lease
	isLost := r.Code == ipc.CodeNotHeld || r.Code == ipc.CodeLost || r.Code == ipc.CodeVerb && l.hold != HoldPID
	switch {
	case r.Kind == ipc.KindErr && isLost:
		err := cl.refusal(r)
		c.lostByDaemon(l, r, lostError(l.name, fmt.Sprintf("the connection ended, and a new one could not resume it: %v", err), err))
		return
	case l.hold != HoldConn && l.cause != nil:
		return
	case r.Kind == ipc.KindOK:
		if duration(r, "deadline") > 0 {
			c.extend(l, r, 0)
		}
		if l.state.needsResume() { // otherwise this answers a resend
			c.resumed++
		}
		c.apply(l, wasResumed, nil)
		return
	case l.hold == HoldConn || r.Code != ipc.CodeLimit:
		c.apply(l, resumeRefused, nil)
	}
	if l.state.needsResume() {
		c.after(retryResume, func() {
			if l.state.needsResume() {
				c.resume(l)
			}
		})
	}
}
