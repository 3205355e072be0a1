package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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
	verb, name := cl.req.Verb, cl.lockName
	cl.state.Store(stateWaiting)
	err := c.transmit(cl)
	switch {
	case err != nil && !cl.state.CompareAndSwap(stateWaiting, stateFailed):
		<-cl.ready // it was abandoned at the same time
	case err == nil && !c.await(ctx, cl):
		return c.abandonedError(op(verb), name, ctx)
	case err == nil && cl.state.Load() == stateFailed:
		err = cmp.Or(cl.failure, ErrClosed)
	}
	if err != nil {
		c.failedWithoutReply(cl)
		return callError(op(verb), name, err)
	}
	return nil
}

// failedWithoutReply is called for a call that fails because there is no daemon. With HoldPID, what
// the call releases or may have been granted does not expire. So the client sends the call in the
// background when there is a daemon. Any other lease ends with its validity, unless the caller
// repeats Unlock.
func (c *Client) failedWithoutReply(cl *call) {
	switch {
	case cl.isProcessGrant() && (cl.maybeDone || !cl.mayBeGranted()):
		if cl.prepareBackground(); cl.mayBeGranted() {
			cl.countedAsRelease = true
			c.releaseStarted()
		}
		c.sendInBackground(cl)
		return
	case cl.req.Verb == ipc.VerbUnlock:
		c.forget(cl.lease)
		cl.lease.mayUnlockAgain(cl.maybeDone)
	}
	c.calls.release(cl)
}

// prepareBackground lets a failed call be sent in the background. A LOCK then does not wait: it
// only finds out what to release.
func (cl *call) prepareBackground() {
	cl.sentOn.Store(0)
	if cl.req.Verb == ipc.VerbLock {
		cl.req.Wait = 0
		cl.req.Set |= ipc.OptWait
	}
}

// abandonedError returns the error of a call that was abandoned before the answer came, because its
// context was done or Close was called.
func (c *Client) abandonedError(op, name string, ctx context.Context) error {
	if ctx.Err() == nil {
		return callError(op, name, ErrClosed)
	}
	err := contextError(op, name, ctx)
	if why := c.Err(); why != nil {
		return fmt.Errorf("%w; there is no connection: %w", err, why)
	}
	return err
}

// transmit sends a call, unless another goroutine will: useConn when there is a connection, or
// sendAfterResume if its lease must be resumed first. After an error, the call was not sent and
// will not be.
func (c *Client) transmit(cl *call) error {
	l := c.link.Load()
	if l == nil {
		return c.requestConn(cl)
	}
	return c.transmitOn(l, cl)
}

// transmitOn sends a call on a connection that may have ended by now. If it was not sent,
// transmitOn clears sentOn: the next connection may already be in use, and useConn would not send
// FORCE or ADMIT on it again.
func (c *Client) transmitOn(l *link, cl *call) error {
	if cl.awaitsResume() || !cl.sentOn.CompareAndSwap(0, l.number) {
		return nil
	}
	err := l.out.send(&cl.req, cl.req.Verb == ipc.VerbUnlock)
	switch {
	case errors.Is(err, errHangs) && cl.sentOn.CompareAndSwap(l.number, sentNever):
		return err
	case err != nil && cl.sentOn.CompareAndSwap(l.number, 0) && c.lastEnded.Load() >= l.number:
		return c.transmit(cl) // the next connection may already be in use
	}
	return nil // if the connection has ended, the next one sends it
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
	if !cl.state.CompareAndSwap(stateWaiting, stateAbandoning) {
		<-cl.ready
		return true
	}
	if cl.mayBeGranted() {
		c.cancel(c.link.Load(), c.calls.tagsOf(cl)...) // before another call can have the tag
		cl.countedAsRelease = true
		c.releaseStarted()
	}
	if !cl.state.CompareAndSwap(stateAbandoning, stateAbandoned) {
		c.settle(cl) // it was answered meanwhile
	} else if l := c.link.Load(); l == nil || cl.sentOn.Load() != l.number {
		c.dropAbandoned()
	}
	return false
}

// cancel cancels requests. CANCEL has no tag: the request's own answer tells the outcome. Without a
// connection, no request is in progress.
func (c *Client) cancel(l *link, tags ...string) {
	if l == nil || len(tags) == 0 {
		return
	}
	var lines []byte
	for _, tag := range tags {
		lines = (&ipc.Request{Verb: ipc.VerbCancel, Words: []string{tag}}).AppendTo(lines)
	}
	l.out.sendLines(lines)
}

// sendInBackground sends a request that has no caller. The reader settles its answer.
func (c *Client) sendInBackground(cl *call) {
	cl.background = true
	cl.state.Store(stateWaiting) // while this goroutine still owns it
	err := c.transmit(cl)
	if err != nil && cl.state.CompareAndSwap(stateWaiting, stateFailed) {
		c.settle(cl)
		return
	}
	c.leaveToReader(cl)
}

// leaveToReader leaves a sent call to the reader. If the reader has already ended its flight,
// leaveToReader settles it.
func (c *Client) leaveToReader(cl *call) {
	if !cl.state.CompareAndSwap(stateWaiting, stateAbandoned) {
		<-cl.ready
		c.settle(cl)
		return
	}
	if c.link.Load() == nil {
		c.dropAbandoned()
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
	if !cl.background && (cl.state.Load() == stateWaiting || cl.mayBeGranted() && cl.sentOn.Load() == 0) {
		return false
	}
	return cl.isProcessGrant()
}

// settle handles the answer of a call that has no caller.
func (c *Client) settle(cl *call) {
	defer c.calls.release(cl)
	switch answer := cl.replyOrNil(); cl.req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		if answer != nil && cl.isGranted() {
			cl.lease.unlockInBackground()
		}
		if cl.countedAsRelease {
			c.releaseDone() // last: what the call was granted is counted by now
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
