package client

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// A request may be sent more than once. On a new connection it keeps its tag. On a connection that
// outlasted a restart of the daemon (BACK), the first answer may be lost or may still come. So the
// request gets another tag there, and the first answer counts. Any answer under the other tag is
// then a stray. It is ignored, unless it grants a lease that nobody knows: that is released. A LOCK
// has an id=, so a second one gets the grant of the first. FORCE and ADMIT are sent only once.

const (
	// resendPause is how long after a LIMIT a request is sent again. After a restart many clients
	// resend at once.
	resendPause = 250 * time.Millisecond
	// maxLimitRefusals is how often that is done.
	maxLimitRefusals = 20
	// maxShutdownRefusals is on how many connections a request may be refused with SHUTDOWN. A
	// daemon that stops refuses on one, and ends it.
	maxShutdownRefusals = 3
	// lostReplyTimeout is how long after BACK to wait for the answer to a request that is sent
	// once. The daemon may have read it only then, and may have to ask the nodes.
	lostReplyTimeout = 5 * time.Second
)

// isSentOnce reports whether the request must not be done twice. The second time it would hit the
// next holder, or another quarantine. The user has to look first.
func (cl *call) isSentOnce() bool {
	return cl.req.Verb == ipc.VerbForce || cl.req.Verb == ipc.VerbAdmit
}

// newTag returns a tag for cl. It needs mu.
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

// dropTag frees a tag. It needs mu.
func (t *callTable) dropTag(tag string) {
	n := tagNumber(tag)
	if t.calls[n] == strayOutlasts {
		t.strayOutlasting--
	}
	t.calls[n] = nil
	t.free = append(t.free, n)
}

func tagNumber(tag string) int {
	n, _ := strconv.ParseUint(tag, 36, 31) // it is one of ours
	return int(n)
}

// makeStrays turns all tags of a call but its own into strays. granted says that one of them was
// granted: the others give the same grant, so nobody needs to wait for them. It needs mu.
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

// setAnsweredTag makes the tag that was answered the call's own. It returns the others, under which
// answers may still come.
func (t *callTable) setAnsweredTag(cl *call, tag string, granted bool) (others []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := cl.tag
	t.swapTag(cl, tag)
	if cl.resendPaused && before != tag { // that one is not under way
		cl.resendTags = slices.DeleteFunc(cl.resendTags, func(other string) bool { return other == before })
		t.dropTag(before)
	}
	others = cl.resendTags
	t.makeStrays(cl, granted)
	return others
}

// swapTag makes tag the call's own. It needs mu.
func (t *callTable) swapTag(cl *call, tag string) {
	if i := slices.Index(cl.resendTags, tag); i >= 0 {
		cl.resendTags[i], cl.tag = cl.tag, tag
	}
}

// endStray handles the answer to a stray.
func (t *callTable) endStray(tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropTag(tag)
}

// dropResendTags is called after the end of a connection: no answer comes any longer.
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

// worthResending reports whether to send a call again: a caller waits for it, it releases
// something, or it asks for the deadline. A request that is sent once is worth it until it is sent.
// Only for calls in flight, with mu.
func (cl *call) worthResending() bool {
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

// appendResend appends the request again, with a tag. A LOCK waits for the rest of its time. If
// nobody waits for it, it does not wait: it only finds out what to release. It needs mu.
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

// useConn starts to use a new connection, and sends what is in flight on it.
func (c *Client) useConn(l *link) {
	c.mu.Lock()
	c.connErr = nil
	c.mu.Unlock()
	c.connectedAt = time.Now()
	c.reconnects.Add(1)
	c.link.Store(l) // from here on others send on it too; sentOn says what
	if c.closed() || c.inheritIfWanted(l) != nil {
		l.hangUp() // Close or Inherit may not have seen it
		return
	}
	c.resumeAll(l)
	c.dropAbandoned()
	c.resend(l, func(cl *call) (tag string) {
		before := cl.sentOn.Load()
		if cl.worthResending() && before < l.number && !cl.awaitsResume() && cl.sentOn.CompareAndSwap(before, l.number) {
			cl.resent = cl.resent || before != 0
			cl.lines = cl.lines[:0] // the whole answer will come again
			return cl.tag
		}
		return ""
	})
}

// afterRestart handles BACK: answers may be lost. It sends what was sent before again, under
// another tag, except requests that are sent once. If such a request was under way, the daemon
// refuses it. If the daemon had not read it, the daemon does it now. If its answer was lost, the
// daemon does not know it, and only a timeout can tell.
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

// probe sends PING under another tag of each request that is sent once and was not answered since
// that restart. The answer to PING ends the request. So the reader ends it, which owns calls in
// flight, and a daemon that hangs gets the time it needs.
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

// setOutcomeUnknown turns r into what the daemon answers if it knows that the request was under
// way.
func setOutcomeUnknown(r *ipc.Response) {
	r.Err(r.Tag, ipc.CodeUnknown, "the daemon was restarted while it was under way, and whether it was done is not known: WHO and STATUS tell")
}

// failSentOnce fails the requests that are sent once and were under way on a connection that has
// ended: no answer comes any longer.
func (c *Client) failSentOnce(over error) {
	why := fmt.Errorf("%w (WHO and STATUS tell): %w", ErrUnknown, over)
	c.failCalls(why, func(cl *call) bool { return cl.isSentOnce() && cl.sentOn.Load() != 0 })
}

// addTag gives the call another tag. It needs mu.
func (t *callTable) addTag(cl *call) string {
	tag := t.newTag(cl)
	cl.resendTags = append(cl.resendTags, tag)
	return tag
}

// resend sends the calls in flight again for which which returns a tag.
func (c *Client) resend(l *link, which func(cl *call) (tag string)) {
	var lines []byte
	var again []*call
	now := time.Since(c.born)
	c.calls.eachInFlight(func(cl *call) {
		if tag := which(cl); tag != "" {
			lines = cl.appendResend(lines, tag, now)
			again = append(again, cl)
		}
	})
	l.out.sendLines(lines)
	c.cancelAbandoned(l, again)
}

// cancelAbandoned cancels calls that were abandoned by the time they were sent again: their CANCEL
// may have been sent earlier.
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
// unless that has happened too often.
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

// resendLimited resends what was refused with LIMIT, under its own tag, which is free again.
func (c *Client) resendLimited() {
	l := c.link.Load()
	if l == nil {
		return // the next connection resends everything
	}
	c.resend(l, func(cl *call) (tag string) {
		if !cl.resendPaused || cl.sentOn.Load() != l.number {
			return ""
		}
		cl.resendPaused = false
		return cl.tag
	})
}
