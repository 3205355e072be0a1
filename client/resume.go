package client

import (
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// How a lease outlasts its connection. With the end of that it is adrift: it
// stands until its timer ends it, and is not extended. Each new connection asks
// for it with RESUME; what is asked about it meanwhile waits for the answer.
// A lease that goes by a process goes on without: it is unheard, and each new connection
// says RESUME to be told of its loss. (FORCE gives it to others at once.)

// retryResume is how long after a refusal that may pass (no quorum, say) a lease
// is asked for again.
const retryResume = 250 * time.Millisecond

// setAdrift is for the end of a connection.
func (c *Client) detachLeases() {
	for _, l := range c.allLeases() {
		if l.isHeld() {
			l.detached.Store(l.hold == HoldConn)
			l.lossUnwatched.Store(l.hold == HoldPID && !l.found) // else it is another connection that is told
		}
		if !l.isHeld() { // it ended at the same time
			l.detached.Store(false)
			l.lossUnwatched.Store(false)
		}
	}
}

// toResume tells whether a connection is to ask for it.
func (l *Lease) needsResume() bool { return l.detached.Load() || l.lossUnwatched.Load() }

func (l *Lease) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause == nil
}

// resumeAll asks for all leases that are to be resumed, before anything else, as far as
// there are places for requests, and for the others as places become free.
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

// askResume waits for a place at most until the connection ends.
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
	_ = on.out.send(&cl.req, true) // it fails where the connection is over
	l.c.handOver(cl)
	if on.ctx.Err() != nil {
		l.c.dropAbandoned()
	}
}

// resumed learns from the answer to RESUME, nil where the connection ended before
// it came: then the next one asks.
func (l *Lease) handleResumeReply(cl *call, r *ipc.Response) {
	switch {
	case r == nil:
		return
	case r.Kind == ipc.KindOK:
		l.resumeGranted(r)
	case l.hold == HoldPID && r.Code != ipc.CodeLimit && r.Code != ipc.CodeNotHeld && r.Code != ipc.CodeLost:
		l.lossUnwatched.Store(false) // with NOQUORUM it is heard of; otherwise CHECK tells of its loss
	case r.Code == ipc.CodeNotHeld || r.Code == ipc.CodeLost || r.Code == ipc.CodeVerb:
		err := cl.replyError()
		l.endByDaemon(r, lostError(l.name, fmt.Sprintf("the connection ended, and another one could not resume it: %v", err), err))
	case l.hold == HoldConn && !l.noteMaybeKept():
		l.unlockAtDeadline()
	default:
		number := cl.sentOn.Load()
		time.AfterFunc(retryResume, func() { l.resumeAgain(number) })
	}
}

// mayBeKept is for a refusal (NOQUORUM, say) with which the lease goes with the connection
// all the same: the daemon may extend it from now on. It tells whether the lease lives.
func (l *Lease) noteMaybeKept() (lives bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybeKept = true
	return l.cause == nil
}

// takenOver: the lease goes with the connection now. One that has ended
// meanwhile is given back.
func (l *Lease) resumeGranted(r *ipc.Response) {
	if duration(r, "deadline") > 0 {
		l.extendDeadline(r, 0)
	}
	if l.isHeld() && l.needsResume() { // else it is the answer to a repeat
		l.c.resumed.Add(1)
	}
	l.lossUnwatched.Store(false)
	l.c.sendAfterResume(l)
	if l.hold == HoldConn && !l.isHeld() { // looked at last: what ends from here on is adrift no more, and owed by that
		l.unlockAtDeadline()
	}
}

// giveBackLate is for a lease that the daemon keeps again, and that is over here: it is
// unlocked when the deadline is reached that its holder knew, for he may still be stopping;
// at once where he has said that he has.
func (l *Lease) unlockAtDeadline() {
	l.mu.Lock()
	stopped := l.unlocking || l.cause == ErrUnlocked
	if l.unlockPending = !stopped; l.unlockPending && l.timer != nil { // nil: whoever is to get the grant gives it back
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

// parked: the daemon may not know the lease that it is about before that is
// resumed, and would say so.
func (cl *call) awaitsResume() bool {
	if cl.lease == nil || !cl.lease.detached.Load() {
		return false
	}
	return cl.req.Verb == ipc.VerbCheck || cl.req.Verb == ipc.VerbExtend || cl.req.Verb == ipc.VerbBeat
}

// unpark sends what was parked, once a lease is resumed or over.
func (c *Client) sendAfterResume(l *Lease) {
	if !l.detached.CompareAndSwap(true, false) {
		return
	}
	on := c.link.Load()
	if on == nil {
		return // takeUp sends it
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
