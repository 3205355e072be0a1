package client

import (
	"errors"

	"github.com/redlockd/redlockd/ipc"
)

// deliver ends the flight of a call. If a caller waits, it owns the call again; otherwise deliver
// settles the call. If the call is not in flight, deliver does nothing.
func (c *Client) deliver(cl *call, endState int32) {
	switch {
	case cl.state.CompareAndSwap(stateWaiting, endState):
		cl.ready <- struct{}{}
	case cl.state.CompareAndSwap(stateAbandoning, endState): // its caller settles it
	case cl.state.CompareAndSwap(stateAbandoned, endState):
		c.settle(cl)
	}
}

// handleLine handles a line from the daemon, and may overwrite r. An error means that the peer does
// not speak the protocol.
func (l *link) handleLine(r *ipc.Response) error {
	switch {
	case r.Kind == ipc.KindEvent:
		l.handleEvent(r)
		return nil
	case r.Tag == "":
		return nil // the answer to CANCEL has no information
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

// ignoresRefusal reports whether the caller does not get a refusal, because the request will be
// sent again. SHUTDOWN is such a refusal, except for FORCE and ADMIT: there it means that the
// outcome is unknown, not that the daemon stops. With drain= it is an answer: the daemon keeps the
// connection, and no other daemon takes over soon. After Close, waiting calls are refused with
// CANCELLED, because Close ends the input. They get their error from run.
func (l *link) ignoresRefusal(cl *call, r *ipc.Response) bool {
	switch {
	case r.Code == ipc.CodeCancelled && l.c.closed():
		return true
	case r.Code == ipc.CodeShutdown && text(r, "drain") == "" && cl.shouldResend() && cl.shutdownRefusals < maxShutdownRefusals:
		cl.shutdownRefusals++
		l.noteDaemonStopping() // the next connection resends it
		return true
	case r.Code == ipc.CodeLimit:
		return l.c.resendLater(cl, r.Tag)
	}
	return false
}

// handleReply handles the last line of an answer. more says that the call is also in flight under
// other tags.
func (l *link) handleReply(cl *call, r *ipc.Response, more bool) error {
	var others []string
	if more {
		others = l.c.calls.setAnsweredTag(cl, r.Tag, r.Kind == ipc.KindOK)
	}
	refused := cl.mayBeGranted() && r.Kind == ipc.KindErr
	cl.reply, *r = *r, cl.reply // reuse the memory of the fields
	if cl.isProbeReply() {
		setOutcomeUnknown(&cl.reply)
	}
	if cl.isGranted() && !l.c.register(cl) {
		return errFields
	}
	l.c.deliver(cl, stateAnswered)
	if refused {
		l.c.cancel(l, others...) // so that none of them goes on waiting
	}
	return nil
}

// handleStray handles the answer to a request that was already answered under another tag. If it
// grants an unknown lease, the client releases the lease, perhaps for the second time.
func (c *Client) handleStray(which *call, r *ipc.Response) {
	if r.Kind == ipc.KindLine {
		return
	}
	if id := text(r, "lease"); which != strayOther && r.Kind == ipc.KindOK && id != "" && c.leaseByID(id, nil) == nil {
		l := &Lease{c: c, name: text(r, "lock"), id: id}
		if which == strayOutlasts {
			l.hold = HoldPID // so that UNLOCK is repeated until it is answered
		}
		l.unlockInBackground()
	}
	c.calls.endStray(r.Tag)
	c.checkReleases()
}

// register adds a granted lease before the next line is read, which may report its loss.
func (c *Client) register(cl *call) bool {
	id := leaseOf(&cl.reply)
	if id == "" {
		return false
	}
	cl.lease.id = id
	cl.lease.setGrant(&cl.reply) // from here on other goroutines can find it
	c.mu.Lock()
	c.leases[id] = cl.lease
	c.mu.Unlock()
	if c.closed() { // Close may have run before it was added
		cl.lease.endWithConnection(ErrClosed)
	}
	return true
}

// forget removes a lease that has ended. It does not remove another Lease with the same ID, which
// was found meanwhile and must learn of its loss.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id] == l {
		delete(c.leases, l.id)
	}
}

// handleEvent handles LOST, BYE and BACK. Other events belong to a later version.
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
		l.noteDaemonStopping()
	case ipc.EventBack:
		l.c.afterRestart(l)
	}
}

var (
	errNoCall = errors.New("a reply without a request")
	errFields = errors.New("a grant without its fields")
)
