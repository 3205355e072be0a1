package client

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/ipc"
)

// LeaseOf returns the lease with HoldPID that a process holds. A pid of 0 means this process. Any
// connection may have taken the lease, but the process must belong to this user. Several names must
// be in the order in which they were locked. LeaseOf does not change the lease; Unlock releases it.
// The Client notices a loss when it next asks the daemon, half way to the deadline. The error
// matches ErrNotHeld if there is no such lease, ErrLost if it was lost, and ErrDenied if the
// process belongs to another user.
func (c *Client) LeaseOf(ctx context.Context, pid int, names ...string) (*Lease, error) {
	if pid == 0 {
		pid = os.Getpid()
	}
	return c.find(ctx, names, func(cl *call) {
		cl.req.PID = pid
		cl.req.Set |= ipc.OptPID
	})
}

// LeaseByID returns the lease with that ID, which another connection took. Any client that
// knows the ID may unlock it. Otherwise it is like LeaseOf.
func (c *Client) LeaseByID(ctx context.Context, id string, names ...string) (*Lease, error) {
	return c.find(ctx, names, func(cl *call) {
		cl.req.Lease = id
		cl.req.Set |= ipc.OptLease
	})
}

// find asks for a lease that was granted to another connection. It returns a lease of this Client
// unchanged.
func (c *Client) find(ctx context.Context, names []string, which func(*call)) (l *Lease, err error) {
	if err := checkNames(ipc.VerbCheck, names); err != nil {
		return nil, err
	}
	cl, err := c.begin(ctx, ipc.VerbCheck, strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	cl.req.Names = append(cl.req.Names, names...)
	which(cl)
	failed := c.finish(ctx, cl, func(cl *call) { l, err = c.leaseFromCheck(ctx, cl) })
	return l, cmp.Or(failed, err)
}

// leaseFromCheck makes a lease of the answer to CHECK.
func (c *Client) leaseFromCheck(ctx context.Context, cl *call) (*Lease, error) {
	id := leaseOf(&cl.reply)
	if id == "" {
		return nil, invalidError(op(ipc.VerbCheck), cl.lockName, ipc.CodeInternal, errFields.Error())
	}
	if own := c.leaseByID(id, nil); own != nil {
		own.extendDeadline(&cl.reply, 0) // Lock may not have returned yet
		own.endIfDue()
		if err := own.endedError(ipc.VerbCheck); err != nil {
			return nil, err
		}
		return own, nil
	}
	l := &Lease{c: c, name: cl.lockName, id: id, base: ctx, hold: HoldPID, isTakenElsewhere: true, lateCheck: defaultLateCheck}
	l.setGrant(&cl.reply)
	if len(cl.req.Names) > 1 {
		l.names = slices.Clone(cl.req.Names)
	}
	if err := l.start(&cl.reply, &cl.req.Options); err != nil {
		return nil, err
	}
	own := c.leaseByID(id, l) // only now, because another goroutine that finds it needs all its fields
	switch {
	case own != l:
		l.end(ErrUnlocked, false) // nobody uses it
	case l.endedError(ipc.VerbCheck) != nil: // its timer has ended it
		c.forget(l)
	case c.closed(): // Close may have run before it was added
		l.endWithoutUnlock(lostError(l.name, "", ErrClosed))
	}
	return own, nil
}
