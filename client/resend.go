package client

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A request may be sent more than once. On a new connection it keeps its tag. If the daemon
// restarts and keeps the connection (BACK), the first answer may be lost or may still come. So the
// request gets another tag there, and the first answer counts. A later answer under the other tag
// is a stray. The client ignores it, unless it grants an unknown lease: then the client releases
// the lease. A LOCK has an id=, so a second one gets the grant of the first. FORCE and ADMIT are
// sent only once.

const (
	// resendPause is the time between LIMIT and the next resend. After a restart many clients resend
	// at once.
	resendPause = 250 * time.Millisecond
	// maxLimitRefusals bounds these resends of a request.
	maxLimitRefusals = 20
	// maxShutdownRefusals bounds the connections on which a request is refused with SHUTDOWN. A
	// stopping daemon refuses it on one, and closes it.
	maxShutdownRefusals = 3
	// lostReplyTimeout is how long after BACK to wait for the answer to FORCE or ADMIT. The daemon
	// may read the request only after the restart, and may have to ask the nodes.
	lostReplyTimeout = 5 * time.Second
)

// isSentOnce reports whether the request must not be executed twice. A second FORCE would revoke
// the next holder's lock; a second ADMIT would end another quarantine. The user has to check first.
func (cl *call) isSentOnce() bool {
	return cl.req.Verb == ipc.VerbForce || cl.req.Verb == ipc.VerbAdmit
}

// newTag returns a free tag for cl. The caller holds mu.
func (t *callTable) newTag(cl *call) string {
	if last := len(t.free) - 1; last >= 0 {
		n := t.free[last]
		t.free = t.free[:last]
		t.calls[n] = cl
		return t.tags[n]
	}
	tag := strconv.FormatInt(int64(len(t.calls)), 36)
	t.calls, t.tags = append(t.calls, cl), append(t.tags, tag)
	return tag
}

// dropTag frees a tag. The caller holds mu.
func (t *callTable) dropTag(tag string) {
	n := tagNumber(tag)
	if t.calls[n] == strayOutlasts {
		t.strayOutlasting--
	}
	t.calls[n] = nil
	t.free = append(t.free, n)
}

func tagNumber(tag string) int {
	n, _ := strconv.ParseUint(tag, 36, 31) // always valid: newTag made it
	return int(n)
}

// makeStrays marks all tags of a call but its own as strays. granted says that one of them was
// granted: the others get the same grant, so the client need not wait for them. The caller holds
// mu.
func (t *callTable) makeStrays(cl *call, granted bool) {
	stray := strayOther
	switch {
	case cl.grantOutlastsConn() && !granted:
		stray = strayOutlasts
		t.strayOutlasting += len(cl.resendTags)
	case cl.mayBeGranted():
		stray = strayLock
	}
	for _, tag := range cl.resendTags {
		t.calls[tagNumber(tag)] = stray
	}
	cl.resendTags = nil
}

// mayOutlast reports whether a stray may still be granted a lease that outlasts the connection.
func (t *callTable) mayOutlast() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.strayOutlasting > 0
}

// setAnsweredTag makes the answered tag the call's own. It returns the other tags under which
// answers may still come.
func (t *callTable) setAnsweredTag(cl *call, tag string, granted bool) (others []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := cl.tag
	t.swapTag(cl, tag)
	if cl.resendPaused && before != tag { // the tag before is not in flight
		cl.resendTags = slices.DeleteFunc(cl.resendTags, func(other string) bool { return other == before })
		t.dropTag(before)
	}
	others = cl.resendTags
	t.makeStrays(cl, granted)
	return others
}

// swapTag makes tag the call's own. The caller holds mu.
func (t *callTable) swapTag(cl *call, tag string) {
	if i := slices.Index(cl.resendTags, tag); i >= 0 {
		cl.resendTags[i], cl.tag = cl.tag, tag
	}
}

// endStray frees the tag of a stray that was answered.
func (t *callTable) endStray(tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropTag(tag)
}

// dropResendTags is called after the end of a connection, when no more answers come.
func (t *callTable) dropResendTags() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, cl := range t.calls {
		if cl != nil && cl.tag != t.tags[n] { // a stray, or a resend
			t.dropTag(t.tags[n])
		}
	}
	for _, cl := range t.calls {
		if cl != nil {
			cl.resendTags, cl.resendPaused = nil, false
		}
	}
}

// tagsOf returns all tags under which a call is in flight.
func (t *callTable) tagsOf(cl *call) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{cl.tag}, cl.resendTags...)
}

// eachInFlight calls f, which must not block, for each call that is in flight.
func (t *callTable) eachInFlight(f func(cl *call)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, cl := range t.calls {
		if cl != nil && cl.tag == t.tags[n] && cl.inFlight() {
			f(cl)
		}
	}
}

// shouldResend reports whether to send a call again: a caller waits for it, it releases
// something, or it asks for the deadline. A request that is sent once is worth it until it is sent.
// The call must be in flight, and the caller holds mu.
func (cl *call) shouldResend() bool {
	switch {
	case cl.isSentOnce() && cl.sentOn.Load() != 0:
		return false
	case cl.state.Load() == stateWaiting:
		return cl.req.Verb != ipc.VerbResume
	}
	switch cl.req.Verb {
	case ipc.VerbUnlock, ipc.VerbCheck:
		return true
	case ipc.VerbLock, ipc.VerbTry:
		return cl.outlivesCaller() // otherwise its grant ends with the connection, or expires
	}
	return false
}

// appendResend appends the request again, with a tag. A LOCK waits for the rest of its time or, if
// no caller waits for it, not at all: it only finds out what to release. The caller holds mu.
func (cl *call) appendResend(b []byte, tag string, now time.Duration) []byte {
	req := cl.req
	req.Tag = tag
	switch left := time.Duration(cl.waitUntil.Load()) - now; {
	case req.Verb != ipc.VerbLock:
	case cl.state.Load() != stateWaiting:
		req.Wait = 0
		req.Set |= ipc.OptWait
	case req.Has(ipc.OptWait) && cl.waitUntil.Load() > 0:
		req.Wait = max(0, left)
	}
	return req.AppendTo(b)
}

// useConn makes a new connection the current one, and sends on it what is in flight.
func (c *Client) useConn(l *link) {
	c.mu.Lock()
	c.connErr = nil
	c.mu.Unlock()
	c.connectedAt = time.Now()
	c.reconnects.Add(1)
	c.link.Store(l) // from here on other goroutines send on it too; sentOn tells which call was sent
	if c.closed() || c.inheritIfWanted(l) != nil {
		l.hangUp() // Close or Inherit may have run before it was stored
		return
	}
	c.resumeAll(l)
	c.dropAbandoned()
	c.resend(l, func(cl *call) (tag string) {
		before := cl.sentOn.Load()
		if cl.shouldResend() && before < l.number && !cl.awaitsResume() && cl.sentOn.CompareAndSwap(before, l.number) {
			cl.resent = cl.resent || before != 0
			cl.lines = cl.lines[:0] // the whole answer will come again
			return cl.tag
		}
		return ""
	})
}

// afterRestart handles BACK: answers may be lost. It resends what was sent before, under another
// tag, except FORCE and ADMIT. If the daemon knows that such a request was in progress, it refuses
// it. If the daemon had not read the request, it executes it now. If the answer was lost, the
// daemon does not know the request, and only a timeout can end it.
func (c *Client) afterRestart(l *link) {
	restart := c.restarts.Add(1)
	doubt := false
	c.resend(l, func(cl *call) (tag string) {
		switch {
		case cl.sentOn.Load() != l.number:
			return ""
		case cl.isSentOnce():
			cl.restart, doubt = restart, true
			return ""
		}
		cl.resent = true
		cl.lines = cl.lines[:0] // as in useConn: the reader, which owns the lines, calls both
		return c.calls.addTag(cl)
	})
	if doubt {
		c.after(lostReplyTimeout, func() { c.probe(l, restart) })
	}
}

// probe sends PING under another tag of each FORCE or ADMIT that was not answered since that
// restart. The answer to PING ends the request. So the reader, which owns calls in flight, ends it,
// and a daemon that hangs gets the time it needs.
func (c *Client) probe(l *link, restart uint64) {
	var lines []byte
	c.calls.eachInFlight(func(cl *call) {
		if cl.restart == restart && cl.sentOn.Load() == l.number {
			lines = (&ipc.Request{Tag: c.calls.addTag(cl), Verb: ipc.VerbPing}).AppendTo(lines)
		}
	})
	l.out.sendLines(lines)
}

// isProbeReply reports whether the reply answers the probe, not the request.
func (cl *call) isProbeReply() bool { return cl.isSentOnce() && cl.reply.Tag != cl.req.Tag }

// setOutcomeUnknown sets r to the answer of a daemon that knows that the request was in progress.
func setOutcomeUnknown(r *ipc.Response) {
	r.Err(r.Tag, ipc.CodeUnknown, "the daemon was restarted while it was in progress, and its result is unknown: ask WHO or STATUS")
}

// failSentOnce fails each FORCE and ADMIT that was in progress on a connection that has ended: no
// answer comes any more.
func (c *Client) failSentOnce(cause error) {
	why := fmt.Errorf("%w (ask WHO or STATUS): %w", ErrUnknown, cause)
	c.failCalls(why, func(cl *call) bool { return cl.isSentOnce() && cl.sentOn.Load() != 0 })
}

// addTag gives the call another tag. The caller holds mu.
func (t *callTable) addTag(cl *call) string {
	tag := t.newTag(cl)
	cl.resendTags = append(cl.resendTags, tag)
	return tag
}

// resend sends again the calls in flight for which which returns a tag.
func (c *Client) resend(l *link, which func(cl *call) (tag string)) {
	var lines []byte
	var again []*call
	now := time.Since(c.createdAt)
	c.calls.eachInFlight(func(cl *call) {
		if tag := which(cl); tag != "" {
			lines = cl.appendResend(lines, tag, now)
			again = append(again, cl)
		}
	})
	l.out.sendLines(lines)
	c.cancelAbandoned(l, again)
}

// cancelAbandoned cancels calls that were abandoned before they were resent: their CANCEL may have
// been sent earlier.
func (c *Client) cancelAbandoned(l *link, sent []*call) {
	var tags []string
	c.calls.mu.Lock()
	for _, cl := range sent {
		if cl.inFlight() && cl.state.Load() != stateWaiting && cl.mayBeGranted() {
			tags = append(append(tags, cl.tag), cl.resendTags...)
		}
	}
	c.calls.mu.Unlock()
	c.cancel(l, tags...)
}

// resendLater handles LIMIT as the answer to a resend. The call stays in flight and is sent again,
// at most maxLimitRefusals times.
func (c *Client) resendLater(cl *call, tag string) bool {
	if !c.calls.pauseResend(cl, tag) {
		return false
	}
	c.after(resendPause, c.resendLimited)
	return true
}

func (t *callTable) pauseResend(cl *call, tag string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !cl.resent || cl.limitRefusals == maxLimitRefusals || cl.req.Verb == ipc.VerbResume {
		return false
	}
	cl.limitRefusals++
	cl.resendPaused = true
	t.swapTag(cl, tag)
	return true
}

// resendLimited resends the calls that were refused with LIMIT, under the same tag.
func (c *Client) resendLimited() {
	l := c.link.Load()
	if l == nil {
		return // the next connection resends all calls
	}
	c.resend(l, func(cl *call) (tag string) {
		if !cl.resendPaused || cl.sentOn.Load() != l.number {
			return ""
		}
		cl.resendPaused = false
		return cl.tag
	})
}
