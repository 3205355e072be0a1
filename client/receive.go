package client

import (
	"errors"
	"slices"

	"github.com/redlockd/redlockd/ipc"
)

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
	c := l.c
	c.mu.Lock()
	cl := c.calls.find(r.Tag)
	switch {
	case cl == strayLock || cl == strayOutlasts || cl == strayOther:
		c.mu.Unlock()
		if r.Kind != ipc.KindLine {
			c.handleStray(cl, r)
		}
		return nil
	case cl == nil || !cl.inFlight():
		c.mu.Unlock()
		return errNoCall
	case r.Kind == ipc.KindLine:
		cl.lines = append(cl.lines, *r)
		*r = ipc.Response{}
	case r.Kind == ipc.KindErr && l.ignoresRefusalLocked(cl, r):
	default:
		return l.handleReplyLocked(cl, r)
	}
	c.unlock()
	return nil
}

// ignoresRefusalLocked reports whether the caller does not get a refusal, because the request will be
// sent again. SHUTDOWN is such a refusal, except for FORCE and ADMIT: there it means that the
// outcome is unknown, not that the daemon stops. With drain= it is an answer: the daemon keeps the
// connection, and no other daemon takes over soon. After Close, waiting calls are refused with
// CANCELLED, because Close ends the input. They get their error from run. The caller holds mu.
func (l *link) ignoresRefusalLocked(cl *call, r *ipc.Response) bool {
	switch {
	case r.Code == ipc.CodeCancelled && l.c.closed():
		return true
	case r.Code == ipc.CodeShutdown && text(r, "drain") == "" && cl.shouldResend() && cl.shutdownRefusals < maxShutdownRefusals:
		cl.shutdownRefusals++
		l.noteDaemonStopping() // the next connection resends it
		return true
	case r.Code == ipc.CodeLimit:
		return l.c.resendLaterLocked(cl, r.Tag)
	}
	return false
}

// handleReplyLocked handles the last line of an answer. It adds a granted lease before the next line is
// read, which may report its loss. The caller holds mu, and handleReplyLocked releases it.
func (l *link) handleReplyLocked(cl *call, r *ipc.Response) error {
	c := l.c
	if len(cl.resendTags) > 0 {
		before := cl.tag
		c.calls.swapTag(cl, r.Tag)
		if cl.resendPaused && before != r.Tag { // the tag before is not in flight
			cl.resendTags = slices.DeleteFunc(cl.resendTags, func(other string) bool { return other == before })
			c.calls.dropTag(before)
		}
		if cl.mayBeGranted() && r.Kind == ipc.KindErr {
			c.cancelTagsLocked(cl.resendTags) // so that none of them goes on waiting
		}
		c.calls.makeStrays(cl, r.Kind == ipc.KindOK)
	}
	cl.reply, *r = *r, cl.reply                        // reuse the memory of the fields
	if cl.isSentOnce() && cl.reply.Tag != cl.req.Tag { // the answer to the PING of afterRestart
		cl.reply.Err(cl.reply.Tag, ipc.CodeUnknown, "the daemon was restarted while it was in progress, and its result is unknown: ask WHO or STATUS")
	}
	var granted *Lease
	if cl.isGranted() {
		granted = cl.lease
		if granted.id = leaseOf(&cl.reply); granted.id == "" {
			c.mu.Unlock()
			return errFields
		}
		granted.setGrant(&cl.reply) // from here on other goroutines can find it
		c.leases[granted.id] = granted
	}
	abandoned := cl.endLocked(stateAnswered)
	c.unlock()
	if granted != nil && c.closed() { // Close may have run before it was added
		granted.endWithConnection(ErrClosed)
	}
	if abandoned {
		c.settle(cl)
	}
	return nil
}

// handleStray handles the answer to a request that was already answered under another tag. If it
// grants an unknown lease, the client releases the lease, perhaps for the second time.
func (c *Client) handleStray(which *call, r *ipc.Response) {
	if id := text(r, "lease"); which != strayOther && r.Kind == ipc.KindOK && id != "" {
		l := &Lease{c: c, name: text(r, "lock"), id: id}
		if which == strayOutlasts {
			l.hold = HoldPID // so that UNLOCK is repeated until it is answered
		}
		if c.leaseByID(id, l) == l {
			l.unlockInBackground()
		}
	}
	c.mu.Lock()
	c.calls.dropTag(r.Tag)
	c.mu.Unlock()
	c.calls.noteRelease()
}

// forget removes a lease that has ended. It does not remove another Lease with the same ID, which
// was found meanwhile and must learn of its loss.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(l)
}

func (c *Client) forgetLocked(l *Lease) {
	if c.leases[l.id] == l {
		delete(c.leases, l.id)
	}
}

// handleEvent handles LOST, BYE and BACK. Other events belong to a later version.
func (l *link) handleEvent(r *ipc.Response) {
	switch r.Event {
	case ipc.EventLost:
		if lease := l.c.leaseByID(text(r, "lease"), nil); lease != nil {
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
