package client

import (
	"errors"

	"github.com/redlockd/redlockd/ipc"
)

// deliver ends the flight of a call: its caller has it again, or, where nobody
// waits, it is settled. It does nothing to a call that is not in flight.
func (c *Client) deliver(cl *call, how int32) {
	switch {
	case cl.state.CompareAndSwap(stateWaiting, how):
		cl.ready <- struct{}{}
	case cl.state.CompareAndSwap(stateAbandoning, how): // its caller settles it
	case cl.state.CompareAndSwap(stateAbandoned, how):
		c.settle(cl)
	}
}

// hear does what a line from the daemon asks for. r is scratch space afterwards.
// An error means that the other side does not speak the protocol.
func (l *link) handleLine(r *ipc.Response) error {
	switch {
	case r.Kind == ipc.KindEvent:
		l.handleEvent(r)
		return nil
	case r.Tag == "":
		return nil // it answers CANCEL, and tells nothing
	}
	cl, more := l.c.calls.find(r.Tag)
	switch {
	case isStray(cl):
		l.c.handleStray(cl, r)
		return nil
	case cl == nil || !cl.inFlight():
		return errNoCall
	case r.Kind == ipc.KindLine:
		cl.lines = append(cl.lines, *r)
		*r = ipc.Response{}
		return nil
	case r.Kind == ipc.KindErr && l.ignoresRefusal(cl, r):
		return nil
	}
	return l.handleReply(cl, r, more)
}

// postpones tells that a refusal is none: what was asked is asked again. SHUTDOWN is
// one of FORCE and ADMIT: where they were under way in a restart, nothing else stops.
// Close ends the input, for which those who wait are CANCELLED: run tells them why.
func (l *link) ignoresRefusal(cl *call, r *ipc.Response) bool {
	switch {
	case r.Code == ipc.CodeCancelled && l.c.closed():
		return true
	case r.Code == ipc.CodeShutdown && cl.worthResending() && cl.shutdownRefusals < maxShutdownRefusals:
		cl.shutdownRefusals++
		l.daemonStops() // and the next connection has it asked again
		return true
	case r.Code == ipc.CodeLimit:
		return l.c.resendLater(cl, r.Tag)
	}
	return false
}

// answer takes the last line of an answer. more: the call is in flight by other
// tags, too.
func (l *link) handleReply(cl *call, r *ipc.Response, more bool) error {
	var others []string
	if more {
		others = l.c.calls.setAnsweredTag(cl, r.Tag, r.Kind == ipc.KindOK)
	}
	refused := cl.mayBeGranted() && r.Kind == ipc.KindErr
	cl.reply, *r = *r, cl.reply // the fields' memory goes round
	if cl.isProbeReply() {
		setOutcomeUnknown(&cl.reply)
	}
	if cl.isGranted() && !l.c.register(cl) {
		return errFields
	}
	l.c.deliver(cl, stateAnswered)
	if refused {
		l.c.cancel(l, others...) // none of them is to wait on
	}
	return nil
}

// stray takes the answer to a request that was answered already, by another tag.
// What it grants that nobody knows is given back; it may have been already.
func (c *Client) handleStray(which *call, r *ipc.Response) {
	if r.Kind == ipc.KindLine {
		return
	}
	if id := text(r, "lease"); which != strayOther && r.Kind == ipc.KindOK && id != "" && c.leaseByID(id, nil) == nil {
		l := &Lease{c: c, name: text(r, "lock"), id: id}
		if which == strayOutlasts {
			l.hold = HoldPID // UNLOCK is repeated for as long as it takes
		}
		l.unlockInBackground()
	}
	c.calls.endStray(r.Tag)
	c.checkReleases()
}

// register makes a granted lease known before anything else is read: the next
// line may be its loss.
func (c *Client) register(cl *call) bool {
	id := leaseOf(&cl.reply)
	if id == "" {
		return false
	}
	cl.lease.id = id
	cl.lease.setGrant(&cl.reply) // from here on others find it
	c.mu.Lock()
	c.leases[id] = cl.lease
	c.mu.Unlock()
	if c.closed() { // Close may not have seen it
		cl.lease.endWithConnection(ErrClosed)
	}
	return true
}

// forget ends the knowledge of a lease that is over: not of another Lease with its id,
// which was found meanwhile and is to hear of its loss.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id] == l {
		delete(c.leases, l.id)
	}
}

// event takes LOST, BYE and BACK; others are of a later version.
func (l *link) handleEvent(r *ipc.Response) {
	switch r.Event {
	case ipc.EventLost:
		l.c.mu.Lock()
		lease := l.c.leases[text(r, "lease")]
		l.c.mu.Unlock()
		if lease != nil {
			lease.endByDaemon(r, lostByEvent(lease.name, r))
		}
	case ipc.EventBye:
		l.daemonStops()
	case ipc.EventBack:
		l.c.afterRestart(l)
	}
}

var (
	errNoCall = errors.New("a reply to no request")
	errFields = errors.New("a grant without its fields")
)
