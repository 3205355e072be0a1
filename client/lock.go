package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// replyMargin is how long before the context's deadline the daemon has to give up, so that its answer,
// which names the holder, arrives in time.
const replyMargin = 20 * time.Millisecond

// Lock takes the lock name, and waits for it until ctx is done or WithWait is
// over. Locks of one Client exclude each other like those of different hosts.
//
// The error matches ErrHeld if somebody else held the lock for all that time,
// with the Holder in *Error; ErrNoQuorum if too few nodes could vote; and also
// context.DeadlineExceeded where it was the deadline of ctx that bounded the
// wait; ErrUnavailable if there was no daemon in the end. When ctx is done before
// there is an answer, the error is that of ctx. Nothing is left behind then: a
// grant that crosses with the end of ctx is unlocked in the background.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbLock, []string{name}, opts)
}

// TryLock takes the lock name if that can be done at once. It waits for the
// answer of the nodes, but for no holder. Errors are those of Lock.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbTry, []string{name}, opts)
}

// LockAll takes several locks at once, all of them or none, as one lease with one
// fencing token: nobody who does so in another order is in the way for ever. It
// waits until all are free at the same time. Errors are those of Lock.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbLock, names, opts)
}

// TryLockAll is LockAll for those that can be taken at once.
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbTry, names, opts)
}

// Do runs fn under the lock name, which it waits for as Lock does, and unlocks.
// fn's context, which is also the lease's Context, is ctx, and ends with the
// lease too, with a cause that matches ErrLost: fn has to stop then. The lock is
// not given back before fn returns, other than by its deadline.
//
// The error is fn's, joined by that of Unlock: it matches ErrLost whenever the
// lock was lost before fn returned, whatever fn makes of it. For its Unlock Do
// waits 5 s at most, even if ctx is done.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lease) error, opts ...Option) (err error) {
	l, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() { err = joinErrors(err, l.unlockAfterDo(ctx)) }() // after a panic of fn as well
	return fn(l.useContext(ctx), l)
}

// within makes ctx, ended by the end of the lease too, the lease's context. It
// is called before any other use of the lease, but for who has found it (LeaseOf).
func (l *Lease) useContext(ctx context.Context) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeContext(ctx)
	return l.ctx
}

// finish unlocks after fn, even if ctx is done, unless fn has done so (by this lease:
// one that the daemon does not know any more is lost).
func (l *Lease) unlockAfterDo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if err := l.Unlock(ctx); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// both is errors.Join, but leaves a single error as it is.
func joinErrors(a, b error) error {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return errors.Join(a, b)
}

func (c *Client) lock(ctx context.Context, verb ipc.Verb, names []string, opts []Option) (*Lease, error) {
	if err := checkNames(verb, names); err != nil {
		return nil, err
	}
	l := &Lease{c: c, name: strings.Join(names, ","), base: ctx}
	if len(names) > 1 {
		l.names = slices.Clone(names)
	}
	if ctx.Err() != nil {
		return nil, contextError(op(verb), l.name, ctx)
	}
	cl, err := c.begin(ctx, verb, l.name)
	if err != nil {
		return nil, err
	}
	cl.lease, cl.req.Names = l, append(cl.req.Names, names...)
	if err := cl.applyOptions(opts); err != nil {
		c.calls.release(cl)
		return nil, err
	}
	bounded := cl.limitWait(ctx)
	c.setIdentity(cl)
	cl.waitUntil.Store(c.connDeadline(cl))
	if cl.grantOutlastsConn() {
		c.releaseStarted() // until it is a lease, or is given up
		defer c.releaseDone()
	}
	if err := c.roundTrip(ctx, cl); err != nil {
		if bounded && atEnd(ctx) && ctx.Err() == nil {
			err = fmt.Errorf("%w (%w)", err, context.DeadlineExceeded)
		}
		return nil, err
	}
	defer c.calls.release(cl)
	if cl.reply.Kind == ipc.KindErr {
		return nil, cl.lockError(ctx, bounded)
	}
	if err := l.start(&cl.reply, &cl.req.Options); err != nil {
		return nil, err
	}
	return l, nil
}

// identify makes the lock exclude all others of this Client, and lets it be sent
// more than once. With HoldPID it is the process that owns it.
func (c *Client) setIdentity(cl *call) {
	var room [32]byte
	cl.req.ID = string(strconv.AppendUint(append(room[:0], c.idPrefix...), c.owners.Add(1), 36))
	cl.req.Set |= ipc.OptID
	if cl.lease.hold != HoldPID {
		cl.req.Owner = cl.req.ID[len(c.idPrefix):]
		cl.req.Set |= ipc.OptOwner
		cl.lease.owner = cl.req.Owner
	}
}

// untilOf is how long a lock waits for a connection.
func (c *Client) connDeadline(cl *call) int64 {
	switch passed := time.Since(c.born); {
	case cl.req.Verb == ipc.VerbTry:
		return waitPatience
	case !cl.req.Has(ipc.OptWait), cl.req.Wait > math.MaxInt64-passed:
		return waitForever
	default:
		return int64(passed + cl.req.Wait)
	}
}

// boundBy shortens the wait to what is left of ctx, less the time for the
// daemon's answer to arrive, and reports whether it did.
func (cl *call) limitWait(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	if !ok || cl.req.Verb == ipc.VerbTry {
		return false
	}
	left := max(0, time.Until(deadline))
	wait := (left - min(left/2, replyMargin)).Truncate(time.Millisecond)
	if cl.req.Has(ipc.OptWait) && cl.req.Wait <= wait {
		return false
	}
	cl.req.Wait = wait
	cl.req.Set |= ipc.OptWait
	return true
}

// noLock is the error of a refused lock. Where the deadline of ctx bounded the
// wait, and has as good as come, that is its cause.
func (cl *call) lockError(ctx context.Context, bounded bool) error {
	err := cl.replyError()
	if bounded && atEnd(ctx) {
		err.Err = context.DeadlineExceeded
	}
	return err
}

// atEnd tells that the deadline of ctx has as good as come. (boundBy asks for whole
// milliseconds, which the daemon may round once more.)
func atEnd(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= replyMargin+2*time.Millisecond
}
