package client

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// How a request is sent more than once. On a new connection it keeps its tag. On
// one that outlasted a restart of the daemon (BACK), where the answer to the first
// may have been lost, or may come yet, it gets another tag, and the answer that
// comes first counts. What answers the other tag later is a stray: ignored, but
// for a grant of a lease that nobody knows, which is given back. A LOCK has an
// id=, by which a repeat gets the grant of the first. FORCE and ADMIT are sent once.

const (
	// retryLimited is how long after a repeat was refused with LIMIT it is sent
	// again: a restart has many repeat at once.
	resendPause = 250 * time.Millisecond
	// mostLimited is how often.
	maxLimitRefusals = 20
	// mostPostponed is on how many connections a request may be refused with
	// SHUTDOWN: a daemon that stops says it on one, and hangs up.
	maxShutdownRefusals = 3
	// answerLost is how long after BACK the answer to what is sent once is waited
	// for: the daemon may have read it only then, and have to ask the nodes.
	lostReplyTimeout = 5 * time.Second
)

// once tells that it is not to be done twice: the second time it would be to who got
// the lock in between, or to another quarantine. Who asked is to look first.
func (cl *call) isSentOnce() bool {
	return cl.req.Verb == ipc.VerbForce || cl.req.Verb == ipc.VerbAdmit
}

// newTag is a tag that leads to cl. It needs mu.
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
	n, _ := strconv.ParseUint(tag, 36, 31) // one of ours
	return int(n)
}

// strays lets go of all tags of a call but its own. Where one of them was granted, so are the
// others, the same: nobody need wait for these. It needs mu.
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

// mayStay tells whether an answer is to come that may be a grant which outlasts the
// connection, and which nobody waits for.
func (t *callTable) mayOutlast() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.strayOutlasting > 0
}

// answeredBy makes tag, which was answered, the call's own, and returns the
// others, by which answers may come yet.
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

// own needs mu.
func (t *callTable) swapTag(cl *call, tag string) {
	if i := slices.Index(cl.resendTags, tag); i >= 0 {
		cl.resendTags[i], cl.tag = cl.tag, tag
	}
}

// strayEnded takes the answer to a stray.
func (t *callTable) endStray(tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropTag(tag)
}

// forgetRepeats: the connection is over, and no answer comes any more.
func (t *callTable) dropResendTags() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, cl := range t.calls {
		if cl != nil && cl.tag != t.tags[n] { // a stray, or a repeat
			t.dropTag(t.tags[n])
		}
	}
	for _, cl := range t.calls {
		if cl != nil {
			cl.resendTags, cl.resendPaused = nil, false
		}
	}
}

// tagsOf are all tags by which a call is in flight.
func (t *callTable) tagsOf(cl *call) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{cl.tag}, cl.resendTags...)
}

// flying calls f with each call that is in flight. f must not block.
func (t *callTable) eachInFlight(f func(cl *call)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, cl := range t.calls {
		if cl != nil && cl.tag == t.tags[n] && cl.inFlight() {
			f(cl)
		}
	}
}

// worthRepeating: somebody waits for it, or it gives something back or tells the
// deadline. What is sent once is so until it is sent. It is for calls in flight, with mu.
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
		return cl.outlivesCaller() // else what it got ends with the connection, or by itself
	}
	return false
}

// appendAgain appends the request once more, with a tag. A LOCK waits for what
// is left of its time; where nobody waits for it any more, it does not wait: it
// only tells what there is to be given back. It needs mu.
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

// takeUp makes a new connection the one in use, and sends on it what is in flight.
func (c *Client) useConn(l *link) {
	c.mu.Lock()
	c.connErr = nil
	c.mu.Unlock()
	c.connectedAt = time.Now()
	c.reconnects.Add(1)
	c.link.Store(l) // from here on others send on it, too: sent tells what
	if c.closed() || c.inheritIfWanted(l) != nil {
		l.hangUp() // Close may not have seen it, nor Inherit
		return
	}
	c.resumeAll(l)
	c.dropAbandoned()
	c.resend(l, func(cl *call) (tag string) {
		before := cl.sentOn.Load()
		if cl.worthResending() && before < l.number && !cl.awaitsResume() && cl.sentOn.CompareAndSwap(before, l.number) {
			cl.resent = cl.resent || before != 0
			cl.lines = cl.lines[:0] // what there is of an answer is answered again
			return cl.tag
		}
		return ""
	})
}

// back is BACK: an answer may have been lost. What was sent before it is sent
// again by another tag, but for what is to be done once: the daemon refuses that if it
// was under way, does it if it was not read before, and does not know it if its answer
// was lost, which only time can tell.
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
		cl.lines = cl.lines[:0] // as in takeUp: both are the reader's, whose the lines are
		return c.calls.addTag(cl)
	})
	if doubt {
		time.AfterFunc(lostReplyTimeout, func() { c.probe(l, restart) })
	}
}

// probe says PING by another tag of what is sent once and was not answered since that
// restart. The answer to PING ends it: so it is the reader that does, whose calls in
// flight are, and a daemon that hangs has its time.
func (c *Client) probe(l *link, restart uint64) {
	var lines []byte
	c.calls.eachInFlight(func(cl *call) {
		if cl.restart == restart && cl.sentOn.Load() == l.number {
			lines = (&ipc.Request{Tag: c.calls.addTag(cl), Verb: ipc.VerbPing}).AppendTo(lines)
		}
	})
	l.out.sendLines(lines)
}

// probed tells that the reply is none to the request, but to probe.
func (cl *call) isProbeReply() bool { return cl.isSentOnce() && cl.reply.Tag != cl.req.Tag }

// notKnown makes r what the daemon answers where it knows that it was under way.
func setOutcomeUnknown(r *ipc.Response) {
	r.Err(r.Tag, ipc.CodeShutdown, "the daemon was restarted while it was under way, and whether it was done is not known: WHO and STATUS tell")
}

// failSent ends what is sent once and went with a connection: no answer comes any more.
func (c *Client) failSentOnce(over error) {
	why := fmt.Errorf("whether it was done is not known (WHO and STATUS tell): %w", over)
	c.failCalls(why, func(cl *call) bool { return cl.isSentOnce() && cl.sentOn.Load() != 0 })
}

// another needs mu.
func (t *callTable) addTag(cl *call) string {
	tag := t.newTag(cl)
	cl.resendTags = append(cl.resendTags, tag)
	return tag
}

// repeat sends the calls in flight again for which which tells a tag.
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

// cancelLeft gives up those calls that nobody has waited for any more by the time
// they were sent again: the CANCEL of who left may have come before that.
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

// refusedRepeat takes LIMIT as the answer to a repeat, unless it was that too often:
// it is sent again, and is in flight yet.
func (c *Client) resendLater(cl *call, tag string) bool {
	if !c.calls.pauseResend(cl, tag) {
		return false
	}
	time.AfterFunc(resendPause, c.resendLimited)
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

// repeatLimited sends again what was refused as one too many. By its own tag,
// which that answer has had.
func (c *Client) resendLimited() {
	l := c.link.Load()
	if l == nil {
		return // the next connection has all sent again
	}
	c.resend(l, func(cl *call) (tag string) {
		if !cl.resendPaused || cl.sentOn.Load() != l.number {
			return ""
		}
		cl.resendPaused = false
		return cl.tag
	})
}
