package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// replyMargin is the time between the end of the daemon's wait and the context's deadline. It lets
// the answer, which names the holder, arrive in time.
const replyMargin = 20 * time.Millisecond

// Lock takes the lock name. It waits until ctx is done or WithWait has passed. Locks of one Client
// exclude each other like locks of different hosts.
//
// The error matches ErrHeld if another holder kept the lock for that time; *Error then has the
// Holder. It matches ErrNoQuorum if too few nodes could vote, and ErrUnavailable if there was no
// daemon at the end of the wait. It also matches context.DeadlineExceeded if the deadline of ctx
// bounded the wait. If ctx is done before an answer comes, Lock returns the error of ctx. The lock
// does not stay taken then: if it is granted at the same moment, it is unlocked in the background.
//
// The error matches ErrDeadlock if ctx is derived from the context of a lease of this Client that has the
// name (Do, Lease.Context), and WithWait is not given: the lock would wait for itself.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbLock, []string{name}, opts)
}

// TryLock takes the lock name if it is free. It waits for the answer of the nodes, but not for a
// holder. Errors are as for Lock.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbTry, []string{name}, opts)
}

// LockAll takes several locks at once, all or none, as one lease with one fencing token. It waits
// until all are free at the same time, so two calls with the names in different orders do not
// deadlock. Errors are as for Lock.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbLock, names, opts)
}

// TryLockAll is like LockAll, but does not wait for holders.
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, ipc.VerbTry, names, opts)
}

// Do waits for the lock name as Lock does, calls fn, and unlocks. The context of fn is derived from
// ctx, and is also the lease's Context. It ends with the lease too, with a cause that matches
// ErrLost: fn must stop then. Do does not release the lock before fn returns, but the lock may
// expire.
//
// Do returns the error of fn, joined with the error of Unlock. It matches ErrLost if the lock was
// lost before fn returned, even if fn returned nil. Do waits at most 5 s for its Unlock, even if
// ctx is done.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lease) error, opts ...Option) (err error) {
	l, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() { // after a panic of fn too
		switch unlocked := l.unlockAfterDo(ctx); {
		case err == nil:
			err = unlocked
		case unlocked != nil:
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(l.useContext(ctx), l)
}

// useContext derives the lease's context from ctx. It must be called before any other use of the
// lease, except by goroutines that have found it (LeaseOf).
func (l *Lease) useContext(ctx context.Context) context.Context {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.makeContextLocked(ctx)
	l.outer = leaseAround(ctx)
	return l.ctx
}

// unlockAfterDo unlocks after fn, even if ctx is done, unless fn has unlocked this lease. A lease
// that the daemon no longer knows is lost.
func (l *Lease) unlockAfterDo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if err := l.Unlock(ctx); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

func (c *Client) lock(ctx context.Context, verb ipc.Verb, names []string, opts []Option) (*Lease, error) {
	if err := checkNames(verb, names); err != nil {
		return nil, err
	}
	l := &Lease{c: c, name: strings.Join(names, ","), base: ctx, lateCheck: defaultLateCheck}
	if len(names) > 1 {
		l.names = slices.Clone(names)
	}
	if ctx.Err() != nil {
		return nil, contextError(op(verb), l.name, ctx)
	}
	cl := newCall(verb, l.name)
	cl.lease, cl.req.Names = l, slices.Clone(names)
	if err := cl.applyOptions(opts); err != nil {
		return nil, err
	}
	if err := cl.checkNested(ctx); err != nil {
		return nil, err
	}
	bounded := cl.limitWait(ctx)
	l.hasOwnGuard, l.guard, l.ttl = cl.req.Has(ipc.OptGuard), cl.req.Guard, cl.req.TTL
	c.enter()
	c.core.setIdentity(cl)
	c.core.begin(cl)
	c.exit()
	err := c.await(ctx, cl)
	if err == nil {
		c.enter()
		err = c.core.taken(l)
		c.exit()
	} else if bounded && isDeadlineNear(ctx) {
		switch refused, ok := err.(*Error); {
		case ok && refused.Code != string(ipc.CodeLost):
			refused.Err = context.DeadlineExceeded
		case !ok && ctx.Err() == nil:
			err = fmt.Errorf("%w (%w)", err, context.DeadlineExceeded)
		}
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// checkNested rejects a lock that would wait for its own context: ctx is derived from that of a lease
// that has one of the names, and ends with it. Goroutines have no identity, so the context is all that
// tells what runs under a lock.
func (cl *call) checkNested(ctx context.Context) error {
	if cl.req.Has(ipc.OptWait) || cl.req.Has(ipc.OptSlots) || cl.req.Mode == ipc.Shared || cl.req.Verb == ipc.VerbTry || cl.lease.hold == HoldPID {
		return nil
	}
	mu := &cl.lease.c.mu
	mu.Lock()
	defer mu.Unlock()
	for l := leaseAround(ctx); l != nil; l = l.outer {
		for _, name := range cl.req.Names {
			if l.cause == nil && l.c == cl.lease.c && (l.name == name || slices.Contains(l.names, name)) {
				return invalidError(op(cl.req.Verb), cl.lockName, ipc.CodeDeadlock,
					fmt.Sprintf("it would wait for itself: its context is that of lease %q, which has %q: pass the Lease on, or use WithWait", l.name, name))
			}
		}
	}
	return nil
}

// setIdentity gives the lock an owner of its own, so that all locks of this Client exclude each
// other, and an ID, so that it can be sent more than once. With HoldPID the process is the owner.
func (c *core) setIdentity(cl *call) {
	c.owners++
	var room [32]byte
	cl.req.ID = string(strconv.AppendUint(append(room[:0], c.idPrefix...), c.owners, 36))
	cl.req.Set |= ipc.OptID
	if cl.lease.hold != HoldPID {
		cl.req.Owner = cl.req.ID[len(c.idPrefix):]
		cl.req.Set |= ipc.OptOwner
		cl.lease.owner = cl.req.Owner
	}
}

// limitWait shortens the wait to the remaining time of ctx, minus the time for the daemon's answer
// to arrive. It reports whether it did.
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

// isDeadlineNear reports whether the deadline of ctx has nearly come. (limitWait rounds to whole
// milliseconds, and the daemon may round once more.)
func isDeadlineNear(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= replyMargin+2*time.Millisecond
}
