package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redlockd/redlockd/ipc"
)

// ask makes a request about a name ("": none) with one more word ("": none),
// waits for the answer, and shows it to use if it is OK.
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

// begin is a call for a request with verb, which errors say is about name ("":
// none). It waits for a place if too many are in use, until ctx is done.
func (c *Client) begin(ctx context.Context, verb ipc.Verb, name string) (*call, error) {
	cl, err := c.calls.acquire(ctx, verb)
	if err != nil {
		return nil, contextError(op(verb), name, ctx)
	}
	cl.lockName = name
	return cl, nil
}

// roundTrip sends a call's request and waits for the answer, over the end of
// connections. On success that is in the call, which is the caller's to put back.
// Otherwise the call is gone: ctx was done first, and the answer is settled by the
// reader when it comes; or there was no connection for too long.
func (c *Client) roundTrip(ctx context.Context, cl *call) error {
	verb, name := cl.req.Verb, cl.lockName
	cl.state.Store(stateWaiting)
	err := c.transmit(cl)
	switch {
	case err != nil && !cl.state.CompareAndSwap(stateWaiting, stateFailed):
		<-cl.ready // it was given up at the same time
	case err == nil && !c.await(ctx, cl):
		return c.gaveUpError(op(verb), name, ctx)
	case err == nil && cl.state.Load() == stateFailed:
		err = cmp.Or(cl.failure, ErrClosed)
	}
	if err != nil {
		c.failedWithoutReply(cl)
		return callError(op(verb), name, err)
	}
	return nil
}

// unanswered is for a call whose caller is told that there is no daemon. What it gives back
// to a process, or may have got for one, does not end by itself: that is seen to when there
// is a daemon. An UNLOCK of anything else is over with the lease's validity, unless it is
// called again.
func (c *Client) failedWithoutReply(cl *call) {
	switch {
	case cl.forProcess() && (cl.maybeDone || !cl.mayBeGranted()):
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

// anew makes a call that failed one to be posted. A LOCK does not wait: it only tells what
// there is to be given back.
func (cl *call) prepareBackground() {
	cl.sentOn.Store(0)
	if cl.req.Verb == ipc.VerbLock {
		cl.req.Wait = 0
		cl.req.Set |= ipc.OptWait
	}
}

// gaveUp is the error of a call whose context was done, or the Client about to be closed,
// before the answer came.
func (c *Client) gaveUpError(op, name string, ctx context.Context) error {
	if ctx.Err() == nil {
		return callError(op, name, ErrClosed)
	}
	err := contextError(op, name, ctx)
	if why := c.Err(); why != nil {
		return fmt.Errorf("%w; there is no connection: %w", err, why)
	}
	return err
}

// transmit sends a call, unless it is sent by others: by takeUp, when there is a
// connection, or, about a lease that this one has not resumed yet, when it has. On
// an error the call was not sent, and nobody will.
func (c *Client) transmit(cl *call) error {
	l := c.link.Load()
	if l == nil {
		return c.requestConn(cl)
	}
	return c.transmitOn(l, cl)
}

// transmitOn is for a connection that may be over by now. What was not sent on it is made
// as if it had never come to it: the next one may have been taken up meanwhile, and what is
// sent once it would not take up at all.
func (c *Client) transmitOn(l *link, cl *call) error {
	if cl.awaitsResume() || !cl.sentOn.CompareAndSwap(0, l.number) {
		return nil
	}
	err := l.out.send(&cl.req, cl.req.Verb == ipc.VerbUnlock)
	switch {
	case errors.Is(err, errHangs) && cl.sentOn.CompareAndSwap(l.number, sentNever):
		return err
	case err != nil && cl.sentOn.CompareAndSwap(l.number, 0) && c.lastEnded.Load() >= l.number:
		return c.transmit(cl) // the next connection may have been taken up before that
	}
	return nil // where the connection is over, the next one takes it up
}

// await reports whether the call was answered before ctx was done, or Close began for what
// would outlast that. If not, it is no longer the caller's.
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
		c.cancel(c.link.Load(), c.calls.tagsOf(cl)...) // before a tag can be another's
		cl.countedAsRelease = true
		c.releaseStarted()
	}
	if !cl.state.CompareAndSwap(stateAbandoning, stateAbandoned) {
		c.settle(cl) // answered in between
	} else if l := c.link.Load(); l == nil || cl.sentOn.Load() != l.number {
		c.dropAbandoned()
	}
	return false
}

// cancel gives up requests. It has no tag: its answer tells nothing that the
// request's own does not. Where there is no connection, nothing is under way.
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

// post sends a request that nobody waits for: the reader settles its answer.
func (c *Client) sendInBackground(cl *call) {
	cl.background = true
	cl.state.Store(stateWaiting) // while it is ours yet
	err := c.transmit(cl)
	if err != nil && cl.state.CompareAndSwap(stateWaiting, stateFailed) {
		c.settle(cl)
		return
	}
	c.handOver(cl)
}

// letGo leaves a call that was sent to the reader, or settles it if that was faster.
func (c *Client) handOver(cl *call) {
	if !cl.state.CompareAndSwap(stateWaiting, stateAbandoned) {
		<-cl.ready
		c.settle(cl)
		return
	}
	if c.link.Load() == nil {
		c.dropAbandoned()
	}
}

// forProcess: what it gives back, or gets, does not end by itself while the process lives.
func (cl *call) forProcess() bool {
	if cl.req.Verb == ipc.VerbUnlock {
		return cl.lease.hold == HoldPID
	}
	return cl.mayBeGranted() && cl.req.Hold == ipc.HoldPID
}

// outlasts: a grant to it stays, for a while at least, where the connection ends before it
// is read.
func (cl *call) grantOutlastsConn() bool {
	return cl.mayBeGranted() && (cl.req.Hold != ipc.HoldConn || cl.req.Linger > 0)
}

// goesOn: nobody waits for it, and it goes on until it is answered, however long there is
// no connection. What was not sent when its caller left has got nothing. It is for calls
// in flight.
func (cl *call) outlivesCaller() bool {
	if !cl.background && (cl.state.Load() == stateWaiting || cl.mayBeGranted() && cl.sentOn.Load() == 0) {
		return false
	}
	return cl.forProcess()
}

// settle does what is left to do with the answer of a call that nobody waits for.
func (c *Client) settle(cl *call) {
	defer c.calls.release(cl)
	switch answer := cl.replyOrNil(); cl.req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		if answer != nil && cl.isGranted() {
			cl.lease.unlockInBackground()
		}
		if cl.countedAsRelease {
			c.releaseDone() // after that: what it has got is counted by now
		}
	case ipc.VerbUnlock:
		cl.lease.handleUnlockReply(cl, answer)
	case ipc.VerbCheck, ipc.VerbExtend, ipc.VerbBeat:
		if cl.lease != nil { // nil: it was to be found
			_ = cl.lease.handleReply(cl, answer) // for nobody: the lease has learnt
		}
	case ipc.VerbResume:
		cl.lease.handleResumeReply(cl, answer)
	}
}
