package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// ask sends a request with a name and a word (either may be empty), and waits for the answer. If it
// is OK, ask passes it to use.
func (c *Client) ask(ctx context.Context, verb ipc.Verb, name, word string, use func(*call)) error {
	cl, err := c.begin(ctx, verb, name)
	if err != nil {
		return err
	}
	if name != "" {
		cl.req.Names = append(cl.req.Names, name)
	}
	if word != "" {
		cl.req.Words = append(cl.req.Words, word)
	}
	return c.finish(ctx, cl, use)
}

// finish sends a call's request, waits for the answer, and passes an OK to use.
func (c *Client) finish(ctx context.Context, cl *call, use func(*call)) error {
	if err := c.roundTrip(ctx, cl); err != nil {
		return err
	}
	defer c.calls.release(cl)
	if cl.reply.Kind == ipc.KindErr {
		return cl.replyError()
	}
	use(cl)
	return nil
}

// begin returns a call for a request with verb. name is for errors, and may be empty. begin waits
// for a permit until ctx is done.
func (c *Client) begin(ctx context.Context, verb ipc.Verb, name string) (*call, error) {
	cl, err := c.calls.acquire(ctx, verb)
	if err != nil {
		return nil, contextError(op(verb), name, ctx)
	}
	cl.lockName = name
	return cl, nil
}

// roundTrip sends a call's request and waits for the answer, even if connections end meanwhile. On
// success the call has the answer, and the caller must release the call. After an error the caller
// must not use the call: ctx was done first, and the reader settles the answer when it comes, or
// there was no connection for too long.
func (c *Client) roundTrip(ctx context.Context, cl *call) error {
	verb, name := cl.req.Verb, cl.lockName // abandoned, it belongs to the goroutine that settles it
	if c.send(cl, stateWaiting) && !c.await(ctx, cl) {
		if ctx.Err() == nil {
			return callError(op(verb), name, ErrClosed)
		}
		err := contextError(op(verb), name, ctx)
		if why := c.Err(); why != nil {
			return fmt.Errorf("%w; there is no connection: %w", err, why)
		}
		return err
	}
	if cl.state == stateFailed {
		err := callError(op(verb), name, cl.failure)
		c.failedWithoutReply(cl)
		return err
	}
	return nil
}

// failedWithoutReply is called for a call that fails because there is no daemon. With HoldPID, what
// the call releases or may have been granted does not expire. So the client sends the call in the
// background when there is a daemon. A LOCK then does not wait: it only finds out what to release.
// Any other lease ends with its validity, unless the caller repeats Unlock.
func (c *Client) failedWithoutReply(cl *call) {
	switch {
	case cl.isProcessGrant() && (cl.maybeDone || !cl.mayBeGranted()):
		if cl.req.Verb == ipc.VerbLock {
			cl.req.Wait = 0
			cl.req.Set |= ipc.OptWait
		}
		c.sendInBackground(cl)
		return
	case cl.req.Verb == ipc.VerbUnlock:
		l := cl.lease
		c.mu.Lock()
		c.forgetLocked(l)
		l.release, l.unlockMaybeDone = releaseNone, l.unlockMaybeDone || cl.maybeDone
		c.mu.Unlock()
	}
	c.calls.release(cl)
}

// send begins the flight of a call. It returns false if the call has failed at once.
func (c *Client) send(cl *call, state int) bool {
	c.mu.Lock()
	defer c.unlock()
	cl.state = state
	if cl.failure = c.transmitLocked(cl); cl.failure != nil {
		cl.state = stateFailed
		return false
	}
	return true
}

// sendInBackground sends a request that has no caller. The reader settles its answer.
func (c *Client) sendInBackground(cl *call) {
	if !c.send(cl, stateAbandoned) {
		c.settle(cl)
	}
}

// transmitLocked sends a call. It does not send the call if that must wait: useConn sends it when there
// is a connection, and sendAfterResumeLocked once its lease is resumed. After an error, the call will not
// be sent. The caller holds mu.
func (c *Client) transmitLocked(cl *call) error {
	switch {
	case c.hasRunEnded:
		return ErrClosed
	case c.link == nil:
		select {
		case c.needConn <- struct{}{}:
		default: // run is already awake
		}
		if cl.waitUntil > 0 {
			c.scheduleExpiryLocked(0) // sets the timer for this call
		}
		return nil
	case cl.awaitsResume():
		return nil
	}
	err := c.link.out.queueLocked(&cl.req, cl.req.Verb == ipc.VerbUnlock)
	if errors.Is(err, errHangs) {
		return err
	}
	cl.sent = err == nil // otherwise the connection has ended, and the next one sends it
	return nil
}

// unlock unlocks mu, and writes what was queued meanwhile.
func (c *Client) unlock() {
	l := c.link
	write := l != nil && l.out.beginWriteLocked()
	c.mu.Unlock()
	if write {
		if len(c.calls.lockPermits)+len(c.calls.otherPermits)+len(c.calls.resumePermits) > 1 {
			runtime.Gosched() // goroutines that are about to send join this write
		}
		l.out.flush()
	}
}

// await reports whether the call was answered before ctx was done (or before Close began, if its
// grant would outlast the connection). If not, the caller no longer owns the call.
func (c *Client) await(ctx context.Context, cl *call) bool {
	var closing <-chan struct{}
	if cl.grantOutlastsConn() {
		closing = c.closing
	}
	select {
	case <-cl.ready:
		return true
	case <-ctx.Done():
	case <-closing:
	}
	c.mu.Lock()
	if cl.state != stateWaiting {
		c.mu.Unlock()
		<-cl.ready
		return true
	}
	cl.state = stateAbandoned
	if cl.mayBeGranted() {
		c.cancelLocked(cl)
	}
	drop := !cl.sent
	c.unlock()
	if drop {
		c.dropAbandoned()
	}
	return false
}

// cancelLocked cancels a call. CANCEL has no tag: the request's own answer tells the outcome. Without a
// connection, no request is in progress. The caller holds mu.
func (c *Client) cancelLocked(cl *call) {
	c.cancelTagsLocked(append([]string{cl.tag}, cl.resendTags...))
}

func (c *Client) cancelTagsLocked(tags []string) {
	for _, tag := range tags {
		if c.link != nil {
			_ = c.link.out.queueLocked(&ipc.Request{Verb: ipc.VerbCancel, Words: []string{tag}}, true) // fails if the connection has ended
		}
	}
}

// isProcessGrant reports whether the grant that the call releases or gets lasts as long as a
// process.
func (cl *call) isProcessGrant() bool {
	if cl.req.Verb == ipc.VerbUnlock {
		return cl.lease.hold == HoldPID
	}
	return cl.mayBeGranted() && cl.req.Hold == ipc.HoldPID
}

// grantOutlastsConn reports whether a grant stays, at least for a while, if the connection ends
// before the client reads it.
func (cl *call) grantOutlastsConn() bool {
	return cl.mayBeGranted() && (cl.req.Hold != ipc.HoldConn || cl.req.Linger > 0)
}

// outlivesCaller reports whether the call goes on without a caller until it is answered, however
// long there is no connection. If it was not sent when its caller left, it was granted nothing. The
// call must be in flight.
func (cl *call) outlivesCaller() bool {
	return cl.state == stateAbandoned && cl.isProcessGrant() && (!cl.mayBeGranted() || cl.sent || cl.maybeDone)
}

// settle handles the answer of a call that has no caller.
func (c *Client) settle(cl *call) {
	defer c.calls.release(cl)
	answer := &cl.reply
	if cl.state == stateFailed {
		answer = nil
	}
	switch cl.req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		if answer != nil && cl.isGranted() {
			cl.lease.unlockInBackground()
		}
	case ipc.VerbUnlock:
		cl.lease.handleUnlockReply(cl, answer)
	case ipc.VerbCheck, ipc.VerbExtend, ipc.VerbBeat:
		if cl.lease != nil { // nil: the call was to find the lease
			_ = cl.lease.handleReply(cl, answer) // no caller gets the error; the lease is updated
		}
	case ipc.VerbResume:
		cl.lease.handleResumeReply(cl, answer)
	}
}

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

// shouldResend reports whether to send a call again: a caller waits for it, it releases
// something, or it asks for the deadline. A request that is sent once is worth it until it is sent.
// The call must be in flight.
func (cl *call) shouldResend() bool {
	switch {
	case cl.isSentOnce() && (cl.sent || cl.maybeDone):
		return false
	case cl.state == stateWaiting, cl.req.Verb == ipc.VerbUnlock, cl.req.Verb == ipc.VerbCheck:
		return true
	}
	return cl.mayBeGranted() && cl.outlivesCaller() // otherwise its grant ends with the connection, or expires
}

// resendLocked sends a call in flight, mostly again, with a tag. A LOCK waits for the rest of its time
// or, if no caller waits for it, not at all: it only finds out what to release. Its CANCEL may have
// been sent earlier, so it is sent again. The caller holds mu, and there is a connection.
func (c *Client) resendLocked(cl *call, tag string) {
	req := cl.req
	req.Tag = tag
	switch left := time.Duration(cl.waitUntil) - time.Since(c.createdAt); {
	case req.Verb != ipc.VerbLock:
	case cl.state != stateWaiting:
		req.Wait = 0
		req.Set |= ipc.OptWait
	case req.Has(ipc.OptWait) && cl.waitUntil > 0:
		req.Wait = max(0, left)
	}
	if c.link.out.queueLocked(&req, true) != nil {
		return // the next connection sends it
	}
	if cl.sent = true; cl.state == stateAbandoned && cl.mayBeGranted() {
		c.cancelLocked(cl)
	}
}

// afterRestart handles BACK: answers may be lost. It resends what was sent before, under another
// tag, except FORCE and ADMIT. If the daemon knows that such a request was in progress, it refuses
// it. If the daemon had not read the request, it executes it now. If the answer was lost, the
// daemon does not know the request. Then PING, which is sent later under another tag, ends the
// request. So a daemon that hangs gets the time it needs.
func (c *Client) afterRestart(l *link) {
	restart := c.restarts.Add(1)
	doubt := false
	c.mu.Lock()
	defer c.unlock()
	for cl := range c.calls.inFlight() {
		switch {
		case !cl.sent:
		case cl.isSentOnce():
			cl.restart, doubt = restart, true
		default:
			cl.maybeDone = true
			cl.lines = cl.lines[:0] // the whole answer will come again
			c.resendLocked(cl, c.calls.addTag(cl))
		}
	}
	if doubt {
		c.afterLocked(lostReplyTimeout, func() {
			c.mu.Lock()
			defer c.unlock()
			for cl := range c.calls.inFlight() {
				if c.link == l && cl.sent && cl.restart == restart {
					_ = l.out.queueLocked(&ipc.Request{Tag: c.calls.addTag(cl), Verb: ipc.VerbPing}, true) // fails if the connection has ended
				}
			}
		})
	}
}

// resendLaterLocked handles LIMIT as the answer to a resend. The call stays in flight and is sent again
// under the same tag, at most maxLimitRefusals times. The caller holds mu.
func (c *Client) resendLaterLocked(cl *call, tag string) bool {
	if !cl.maybeDone || cl.limitRefusals == maxLimitRefusals || cl.req.Verb == ipc.VerbResume {
		return false
	}
	cl.limitRefusals++
	cl.resendPaused = true
	c.calls.swapTag(cl, tag)
	c.afterLocked(resendPause, c.resendLimited)
	return true
}

// resendLimited resends the calls that were refused with LIMIT. Without a connection, the next one
// resends all calls.
func (c *Client) resendLimited() {
	c.mu.Lock()
	defer c.unlock()
	for cl := range c.calls.inFlight() {
		if cl.resendPaused && c.link != nil {
			cl.resendPaused = false
			c.resendLocked(cl, cl.tag)
		}
	}
}
