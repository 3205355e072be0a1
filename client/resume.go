package client

import (
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A lease outlasts its connection. When the connection ends, the lease is detached: it is held
// until its timer ends it, and is not extended. Each new connection asks for it with RESUME. Other
// requests about it wait for the answer. A lease that depends on a process is not detached, but its
// loss is not watched. Each new connection sends RESUME for it, to be told of its loss. (FORCE
// gives it to others at once.)

// retryResume is how long after a temporary refusal (such as no quorum) to ask for a lease again.
const retryResume = 250 * time.Millisecond

// detachLeases is called at the end of a connection.
func (c *Client) detachLeases() {
	for _, l := range c.allLeases() {
		if l.isHeld() {
			l.detached.Store(l.hold == HoldConn)
			l.lossUnwatched.Store(l.hold == HoldPID && !l.found) // otherwise another connection is told
		}
		if !l.isHeld() { // it ended at the same time
			l.detached.Store(false)
			l.lossUnwatched.Store(false)
		}
	}
}

// needsResume reports whether a connection has to ask for the lease.
func (l *Lease) needsResume() bool { return l.detached.Load() || l.lossUnwatched.Load() }

func (l *Lease) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause == nil
}

// resumeAll asks for all leases that need it, before anything else is sent. It asks for as many as
// there are permits, and for the rest as permits become free.
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

// askResume waits for a permit, at most until the connection ends.
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
	l.c.handOver(cl)
	if on.ctx.Err() != nil {
		l.c.dropAbandoned()
	}
}

// handleResumeReply handles the answer to RESUME, or nil if the connection ended before: then the
// next one asks.
func (l *Lease) handleResumeReply(cl *call, r *ipc.Response) {
	switch {
	case r == nil:
		return
	case r.Kind == ipc.KindOK:
		l.resumeGranted(r)
	case l.hold == HoldPID && r.Code != ipc.CodeLimit && r.Code != ipc.CodeNotHeld && r.Code != ipc.CodeLost:
		l.lossUnwatched.Store(false) // after NOQUORUM the loss is reported; otherwise CHECK reports it
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

// resumeGranted is called when the connection has the lease. If the lease has ended meanwhile, it
// is released.
func (l *Lease) resumeGranted(r *ipc.Response) {
	if duration(r, "deadline") > 0 {
		l.extendDeadline(r, 0)
	}
	if l.isHeld() && l.needsResume() { // otherwise it is the answer to a resend
		l.c.resumed.Add(1)
	}
	l.lossUnwatched.Store(false)
	l.c.sendAfterResume(l)
	if l.hold == HoldConn && !l.isHeld() { // checked last: if it ends from here on, it is not detached, and end unlocks it
		l.unlockAtDeadline()
	}
}

// unlockAtDeadline unlocks a lease that the daemon keeps but that has ended here. It waits until
// the deadline that the holder knew, because the holder may still be stopping. If the holder has
// unlocked, it has stopped, and the lease is unlocked at once.
func (l *Lease) unlockAtDeadline() {
	l.mu.Lock()
	stopped := l.unlocking || l.cause == ErrUnlocked
	if l.unlockPending = !stopped; l.unlockPending && l.timer != nil { // nil: the goroutine that takes the grant releases it
		l.timer.Reset(max(0, l.deadline-l.c.clock()))
	}
	l.mu.Unlock()
	if stopped {
		l.c.spawn(l.postUnlock)
	}
}

// resumeAgain asks once more, on the connection with that number.
func (l *Lease) resumeAgain(number uint64) {
	on := l.c.link.Load()
	if on != nil && on.number == number && l.needsResume() {
		l.c.spawn(func() { l.askResume(on) })
	}
}

// awaitsResume reports whether the call must wait until its lease is resumed. The daemon may not
// know the lease before, and would say so.
func (cl *call) awaitsResume() bool {
	if cl.lease == nil || !cl.lease.detached.Load() {
		return false
	}
	return cl.req.Verb == ipc.VerbCheck || cl.req.Verb == ipc.VerbExtend || cl.req.Verb == ipc.VerbBeat
}

// sendAfterResume sends the calls that waited, once the lease is resumed or has ended.
func (c *Client) sendAfterResume(l *Lease) {
	if !l.detached.CompareAndSwap(true, false) {
		return
	}
	on := c.link.Load()
	if on == nil {
		return // useConn sends it
	}
	c.resend(on, func(cl *call) (tag string) {
		before := cl.sentOn.Load()
		if cl.lease == l && cl.worthResending() && before < on.number && cl.sentOn.CompareAndSwap(before, on.number) {
			cl.resent = cl.resent || before != 0
			return cl.tag
		}
		return ""
	})
}
