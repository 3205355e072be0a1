package client

import (
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A lease outlasts its connection. When the connection ends, the lease is detached: it is held
// until its timer ends it, and is not extended. Each new connection sends RESUME for it. Other
// requests about the lease wait for the answer. A lease with HoldPID is not detached, but no
// connection would report its loss. So each new connection sends RESUME for it as well. (After
// FORCE another client holds the lock at once.)

// retryResume is the time between a temporary refusal (such as NOQUORUM) and the next RESUME.
const retryResume = 250 * time.Millisecond

func (l *Lease) isDetached() bool { return l.hold == HoldConn && l.detached }

// resumeAllLocked sends RESUME for all leases that need it, before anything else is sent. It sends as
// many as there are permits, and the rest as permits become free. The caller holds mu.
func (c *Client) resumeAllLocked(on *link) {
	var later []*Lease
	for _, l := range c.leases {
		if !l.detached {
			continue
		}
		select {
		case c.calls.resumePermits <- struct{}{}:
			l.sendResumeLocked(c.calls.takeIdleLocked(ipc.VerbResume), on)
		default:
			later = append(later, l)
		}
	}
	if later != nil {
		c.spawnLocked(func() {
			for _, l := range later {
				l.askResume(on)
			}
		})
	}
}

// askResume waits for a permit until the connection ends, and sends RESUME.
func (l *Lease) askResume(on *link) {
	cl, err := l.c.calls.acquire(on.ctx, ipc.VerbResume)
	if err != nil {
		return
	}
	l.c.mu.Lock()
	ended := l.c.link != on
	if !ended {
		l.sendResumeLocked(cl, on)
	}
	l.c.unlock()
	if ended {
		l.c.calls.release(cl)
	}
}

// sendResumeLocked sends RESUME without a caller. The caller holds mu.
func (l *Lease) sendResumeLocked(cl *call, on *link) {
	cl.setLease(l)
	cl.req.Names = append(append(cl.req.Names, l.names...), l.name)[:max(1, len(l.names))]
	if l.hold != HoldPID {
		cl.req.Owner = l.owner
		cl.req.Set |= ipc.OptOwner
	}
	cl.state, cl.sent = stateAbandoned, true
	_ = on.out.queueLocked(&cl.req, true) // fails if the connection has ended
}

// handleResumeReply handles the answer to RESUME. r is nil if the connection ended before the
// answer: the next connection sends RESUME.
func (l *Lease) handleResumeReply(cl *call, r *ipc.Response) {
	c := l.c
	switch {
	case r == nil:
	case r.Kind == ipc.KindOK:
		l.resumeGranted(r)
	case r.Code == ipc.CodeNotHeld || r.Code == ipc.CodeLost || r.Code == ipc.CodeVerb && l.hold != HoldPID:
		err := cl.replyError()
		l.endByDaemon(r, lostError(l.name, fmt.Sprintf("the connection ended, and a new one could not resume it: %v", err), err))
	case l.hold == HoldPID && r.Code != ipc.CodeLimit:
		c.mu.Lock()
		defer c.mu.Unlock()
		l.detached = false // after NOQUORUM the daemon reports a loss; otherwise CHECK does
	default:
		c.mu.Lock()
		l.maybeKept = true // after NOQUORUM, for example, the daemon may still extend the lease for this connection
		ended := l.hold == HoldConn && l.cause != nil
		if on := c.link; !ended {
			c.afterLocked(retryResume, func() { l.resumeAgain(on) })
		}
		c.mu.Unlock()
		if ended {
			l.unlockAtDeadline()
		}
	}
}

// resumeGranted is called when the connection has the lease. If the lease has ended meanwhile, it is
// released.
func (l *Lease) resumeGranted(r *ipc.Response) {
	if duration(r, "deadline") > 0 {
		l.extendDeadline(r, 0)
	}
	c := l.c
	c.mu.Lock()
	held := l.cause == nil
	if held && l.detached { // otherwise this answers a resend
		c.resumed.Add(1)
	}
	c.sendAfterResumeLocked(l)
	c.unlock()
	if l.hold == HoldConn && !held { // a lease that ends from here on is not detached, so end unlocks it
		l.unlockAtDeadline()
	}
}

// unlockAtDeadline unlocks a lease that has ended here but that the daemon keeps. It waits until
// the deadline that the holder knew, because the holder may still be stopping. If the holder has
// called Unlock, it has stopped, and the lease is unlocked at once: by the UNLOCK of that call, if
// the call ended the lease. A second UNLOCK could overtake that one, which would report a loss.
func (l *Lease) unlockAtDeadline() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	switch sent, unlocked := l.release == releaseSent, l.cause == ErrUnlocked; {
	case !sent && !unlocked:
		l.releaseLaterLocked()
	case !sent || !unlocked:
		l.c.spawnLocked(l.postUnlock)
	}
}

// resumeAgain sends RESUME once more, if the connection is still in use.
func (l *Lease) resumeAgain(on *link) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.link == on && l.detached {
		l.c.spawnLocked(func() { l.askResume(on) })
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

// sendAfterResumeLocked sends the calls that waited, once the lease is resumed or has ended. Without a
// connection, useConn sends them. The caller holds mu.
func (c *Client) sendAfterResumeLocked(l *Lease) {
	if !l.detached {
		return
	}
	l.detached = false
	if l.hold == HoldPID || c.link == nil {
		return
	}
	for cl := range c.calls.inFlight() {
		if cl.lease == l && cl.shouldResend() && !cl.sent {
			c.resendLocked(cl, cl.tag)
		}
	}
}
