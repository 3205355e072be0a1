package client

import (
	"errors"
	"slices"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

const (
	// resendPause is the time between LIMIT and the next resend. After a restart many clients resend
	// at once.
	resendPause = 250 * time.Millisecond
	// maxLimits bounds these resends of a request.
	maxLimits = 20
	// maxShutdowns bounds the connections on which a request is refused with SHUTDOWN. A stopping
	// daemon refuses it on one, and closes it.
	maxShutdowns = 3
	// lostReplyTimeout is how long after BACK to wait for the answer to FORCE or ADMIT. The daemon
	// may read the request only after the restart, and may have to ask the nodes.
	lostReplyTimeout = 5 * time.Second
)

var (
	errNoCall = errors.New("a reply without a request")
	errFields = errors.New("a grant without its fields")
)

// line handles a line from the daemon, and may overwrite r. An error means that the peer does not speak
// the protocol.
func (c *core) line(r *ipc.Response) error {
	if r.Kind == ipc.KindEvent {
		c.event(r)
		return nil
	} else if r.Tag == "" {
		return nil // the answer to CANCEL has no information
	}
	tag, ok := c.flight.find(r.Tag)
	if !ok {
		return errNoCall
	}
	switch cl := c.flight.tags[tag].call; {
	case cl == nil:
		if r.Kind != ipc.KindLine {
			c.strayAnswered(tag, r)
		}
	case r.Kind == ipc.KindLine:
		cl.lines = append(cl.lines, *r)
		*r = ipc.Response{}
	case r.Kind == ipc.KindErr && c.sendsAgain(cl, tag, r):
	case cl.mayBeGranted() && r.Kind == ipc.KindOK && leaseOf(r) == "":
		return errFields
	default:
		c.answerCame(cl, tag, r)
	}
	return nil
}

// event handles LOST, BYE and BACK. Other events belong to a later version.
func (c *core) event(r *ipc.Response) {
	switch r.Event {
	case ipc.EventLost:
		if l := c.leases[text(r, "lease")]; l != nil {
			c.lostByDaemon(l, r, lostByEvent(l.name, r))
		}
	case ipc.EventBye:
		c.stopping()
	case ipc.EventBack:
		c.restarted()
	}
}

// answerCame handles the last line of an answer.
func (c *core) answerCame(cl *call, tag int, r *ipc.Response) {
	if cl.mayBeGranted() && r.Kind == ipc.KindErr {
		c.cancel(cl, tag) // so that none of its other requests goes on waiting
	}
	if cl.isDoneOnce() && tag != cl.tags[0] { // the answer to the PING of restarted
		r.Err(r.Tag, ipc.CodeUnknown, "the daemon was restarted while it was in progress, and its result is unknown: ask WHO or STATUS")
	}
	err := c.settle(cl, r)
	c.flight.remove(tag)
	c.end(cl, err, r.Kind == ipc.KindOK)
}

// settle handles an answer, and returns the caller's error.
func (c *core) settle(cl *call, r *ipc.Response) error {
	switch {
	case cl.req.Verb == ipc.VerbUnlock:
		return c.unlocked(cl, r)
	case cl.req.Verb == ipc.VerbResume:
		c.resumeAnswered(cl, r)
		return nil
	case cl.lease != nil && !cl.mayBeGranted() && cl.lease.id != "":
		return c.checked(cl, r)
	case r.Kind == ipc.KindErr:
		return cl.refusal(r)
	case cl.mayBeGranted():
		return c.granted(cl, r)
	case cl.lease != nil:
		return c.found(cl, r)
	}
	cl.reply, *r = *r, ipc.Response{Kind: r.Kind}
	return nil
}

// refusal returns the error of a reply that is ERR.
func (cl *call) refusal(r *ipc.Response) *Error { return refusalError(cl.op(), cl.lockName, r) }

// sendsAgain reports whether the caller does not get a refusal, because the request will be sent again.
// SHUTDOWN is such a refusal, except for FORCE and ADMIT: there it means that the outcome is unknown, not
// that the daemon stops. With drain= it is an answer: the daemon keeps the connection, and no other daemon
// takes over soon. After Close, waiting calls are refused with CANCELLED, because Close ends the input.
// They get their error from close.
func (c *core) sendsAgain(cl *call, tag int, r *ipc.Response) bool {
	switch {
	case r.Code == ipc.CodeCancelled && c.isClosed:
		return true
	case r.Code == ipc.CodeShutdown && text(r, "drain") == "" && cl.shouldSend() && cl.shutdowns < maxShutdowns:
		cl.shutdowns++
		c.stopping() // the next connection sends it
		return true
	case r.Code == ipc.CodeLimit && cl.maybeDone && cl.limits < maxLimits && cl.req.Verb != ipc.VerbResume:
		cl.limits++
		cl.limited = true
		if len(cl.tags) > 1 {
			cl.tags = slices.DeleteFunc(cl.tags, func(other int) bool { return other == tag })
			c.flight.remove(tag)
		} else {
			cl.sent = false
		}
		c.after(resendPause, func() {
			if cl.limited && cl.inFlight {
				c.send(cl)
			}
		})
		return true
	}
	return false
}

// strayAnswered handles the answer to a request that was already answered under another tag. If it
// grants an unknown lease, the client releases the lease, perhaps for the second time.
func (c *core) strayAnswered(tag int, r *ipc.Response) {
	kind := c.flight.tags[tag].stray
	c.flight.remove(tag)
	id := text(r, "lease")
	if kind == strayOther || r.Kind != ipc.KindOK || id == "" || c.leases[id] != nil {
		return
	}
	l := &Lease{name: text(r, "lock"), id: id, state: leaseHeld}
	if kind == strayOutlasts {
		l.hold = HoldPID // so that UNLOCK is repeated until it is answered
	}
	c.addLease(l)
	c.apply(l, wasDropped, ErrUnlocked)
}

// restarted handles BACK: answers may be lost. It sends again what was sent before, under another tag,
// except FORCE and ADMIT. If the daemon knows that such a request was in progress, it refuses it. If the
// daemon had not read the request, it executes it now. If the answer was lost, the daemon does not know
// the request. Then PING, which is sent later under another tag, ends the request. So a daemon that hangs
// gets the time it needs.
func (c *core) restarted() {
	c.restarts++
	restart, isInDoubt := c.restarts, false
	for cl := range c.flight.calls() {
		switch {
		case !cl.sent:
		case cl.isDoneOnce():
			cl.probed, isInDoubt = restart, true
		default:
			cl.maybeDone = true
			cl.lines = nil // the whole answer will come again
			c.send(cl)
		}
	}
	if !isInDoubt {
		return
	}
	c.after(lostReplyTimeout, func() {
		for cl := range c.flight.calls() {
			if cl.sent && cl.probed == restart && c.mute == nil {
				ping := ipc.Request{Tag: c.flight.tags[c.flight.add(cl)].text, Verb: ipc.VerbPing}
				c.out = ping.AppendTo(c.out)
			}
		}
	})
}
