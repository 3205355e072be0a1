package client

import (
	"fmt"
	"math"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A lease outlasts its connection. When the connection ends, the lease is detached: it is held
// until its timer ends it, and is not extended. Each new connection sends RESUME for it. Other
// requests about the lease wait for the answer. A lease with HoldPID is not detached, but no
// connection would report its loss. So each new connection sends RESUME for it as well. (After
// FORCE another client holds the lock at once.)

// everyConn is above the number of every connection.
const everyConn = math.MaxUint64

// retryResume is the time between a temporary refusal (such as NOQUORUM) and the next RESUME.
const retryResume = 250 * time.Millisecond

// detachLeases is called at the end of the connection with that number.
func (c *Client) detachLeases(number uint64) {
	for _, l := range c.allLeases() {
		// If another program took a lease with HoldPID, the daemon reports its loss to that one.
		if l.isHeld() && (l.hold == HoldConn || l.hold == HoldPID && !l.isTakenElsewhere) {
			l.endedConn.Store(number)
		}
		if !l.isHeld() { // it ended at the same time
			l.endedConn.Store(0)
		}
	}
}

// needsResume reports whether a connection has to send RESUME for the lease.
func (l *Lease) needsResume() bool { return l.endedConn.Load() != 0 }

func (l *Lease) isDetached() bool { return l.hold == HoldConn && l.needsResume() }

func (l *Lease) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause == nil
}

// resumeAll sends RESUME for all leases that need it, before anything else is sent. It sends as
// many as there are permits, and the rest as permits become free.
func (c *Client) resumeAll(on *link) {
	var later []*Lease
	for _, l := range c.allLeases() {
		if !l.needsResume() {
			continue
		}
		if cl := c.calls.tryAcquire(ipc.VerbResume); cl != nil {
			l.sendResume(cl, on)
		} else {
			later = append(later, l)
		}
	}
	if later == nil {
		return
	}
	c.spawn(func() {
		for _, l := range later {
			l.askResume(on)
		}
	})
}

// askResume waits for a permit until the connection ends, and sends RESUME.
func (l *Lease) askResume(on *link) {
	if cl, err := l.c.calls.acquire(on.ctx, ipc.VerbResume); err == nil {
		l.sendResume(cl, on)
	}
}

func (l *Lease) sendResume(cl *call, on *link) {
	cl.setLease(l)
	cl.req.Names = append(append(cl.req.Names, l.names...), l.name)[:max(1, len(l.names))]
	if l.hold != HoldPID {
		cl.req.Owner = l.owner
		cl.req.Set |= ipc.OptOwner
	}
	cl.sentOn.Store(on.number)
	cl.state.Store(stateWaiting)
	_ = on.out.send(&cl.req, true) // fails if the connection has ended
	l.c.leaveToReader(cl)
	if on.ctx.Err() != nil {
		l.c.dropAbandoned()
	}
}

// handleResumeReply handles the answer to RESUME. r is nil if the connection ended before the
// answer: the next connection sends RESUME.
func (l *Lease) handleResumeReply(cl *call, r *ipc.Response) {
	switch {
	case r == nil:
		return
	case r.Kind == ipc.KindOK:
		l.resumeGranted(r, cl.sentOn.Load())
	case l.hold == HoldPID && r.Code != ipc.CodeLimit && r.Code != ipc.CodeNotHeld && r.Code != ipc.CodeLost:
		l.setResumed(cl.sentOn.Load()) // after NOQUORUM the daemon reports a loss; otherwise CHECK does
	case r.Code == ipc.CodeNotHeld || r.Code == ipc.CodeLost || r.Code == ipc.CodeVerb:
		err := cl.replyError()
		l.endByDaemon(r, lostError(l.name, fmt.Sprintf("the connection ended, and a new one could not resume it: %v", err), err))
	case l.hold == HoldConn && !l.noteMaybeKept():
		l.unlockAtDeadline()
	default:
		number := cl.sentOn.Load()
		l.c.after(retryResume, func() { l.resumeAgain(number) })
	}
}

// noteMaybeKept is called after a refusal (such as NOQUORUM) after which the daemon may still
// extend the lease for this connection. It reports whether the lease is held.
func (l *Lease) noteMaybeKept() (lives bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybeKept = true
	return l.cause == nil
}

// resumeGranted is called when the connection with that number has the lease. If the lease has
// ended meanwhile, it is released.
func (l *Lease) resumeGranted(r *ipc.Response, number uint64) {
	if duration(r, "deadline") > 0 {
		l.extendDeadline(r, 0)
	}
	if l.isHeld() && l.needsResume() { // otherwise this answers a resend
		l.c.resumed.Add(1)
	}
	l.c.sendAfterResume(l, number)
	if l.hold == HoldConn && !l.isHeld() { // checked last: a lease that ends from here on is not detached, so end unlocks it
		l.unlockAtDeadline()
	}
}

// unlockAtDeadline unlocks a lease that has ended here but that the daemon keeps. It waits until
// the deadline that the holder knew, because the holder may still be stopping. If the holder has
// called Unlock, it has stopped, and the lease is unlocked at once: by the UNLOCK of that call, if
// the call ended the lease. A second UNLOCK could overtake that one, which would report a loss.
func (l *Lease) unlockAtDeadline() {
	l.mu.Lock()
	stopped, sent := l.unlocking || l.cause == ErrUnlocked, l.unlocking && l.cause == ErrUnlocked
	if l.unlockPending = !stopped; l.unlockPending && l.timer != nil { // nil: the goroutine that takes the grant releases it
		l.timer.Reset(max(0, l.deadline-l.c.clock()))
	}
	l.mu.Unlock()
	if stopped && !sent {
		l.c.spawn(l.postUnlock)
	}
}

// resumeAgain sends RESUME once more, if the connection with that number is still in use.
func (l *Lease) resumeAgain(number uint64) {
	on := l.c.link.Load()
	if on != nil && on.number == number && l.needsResume() {
		l.c.spawn(func() { l.askResume(on) })
	}
}

// awaitsResume reports whether the call must wait until its lease is resumed. Before that the
// daemon may not know the lease, and would answer so.
func (cl *call) awaitsResume() bool {
	if cl.lease == nil || !cl.lease.isDetached() {
		return false
	}
	return cl.req.Verb == ipc.VerbCheck || cl.req.Verb == ipc.VerbExtend || cl.req.Verb == ipc.VerbBeat
}

// setResumed records that the connection with that number has the lease, and reports whether that
// changed. An answer that is handled late, after the end of that connection, changes nothing.
func (l *Lease) setResumed(number uint64) bool {
	ended := l.endedConn.Load()
	return ended != 0 && ended < number && l.endedConn.CompareAndSwap(ended, 0)
}

// sendAfterResume sends the calls that waited, once the lease is resumed on the connection with that
// number or, with everyConn, has ended.
func (c *Client) sendAfterResume(l *Lease, number uint64) {
	if !l.setResumed(number) || l.hold == HoldPID {
		return
	}
	on := c.link.Load()
	if on == nil {
		return // useConn sends them
	}
	c.resend(on, func(cl *call) (tag string) {
		before := cl.sentOn.Load()
		if cl.lease == l && cl.shouldResend() && before < on.number && cl.sentOn.CompareAndSwap(before, on.number) {
			cl.resent = cl.resent || before != 0
			return cl.tag
		}
		return ""
	})
}
