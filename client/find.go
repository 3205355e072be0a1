package client

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/ipc"
)

// LeaseOf returns the lease with HoldPID that a process holds. A pid of 0 means this process. It
// does not matter which connection took the lease, but it must belong to this user. Several names
// must be in the order in which they were locked. The lease stays as it was; Unlock releases it. A
// loss is noticed when the Client asks the daemon, half way to the deadline. The error matches
// ErrNotHeld if there is no such lease, ErrLost if it was lost, and ErrDenied if the process
// belongs to another user.
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
func (c *Client) find(ctx context.Context, names []string, which func(*call)) (*Lease, error) {
	if err := checkNames(ipc.VerbCheck, names); err != nil {
		return nil, err
	}
	cl, err := c.begin(ctx, ipc.VerbCheck, strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	cl.req.Names = append(cl.req.Names, names...)
	which(cl)
	if err := c.roundTrip(ctx, cl); err != nil {
		return nil, err
	}
	defer c.calls.release(cl)
	if cl.reply.Kind == ipc.KindErr {
		return nil, cl.replyError()
	}
	return c.found(ctx, cl)
}

// found makes a lease of the answer to CHECK.
func (c *Client) found(ctx context.Context, cl *call) (*Lease, error) {
	id := leaseOf(&cl.reply)
	if id == "" {
		return nil, invalidError(op(ipc.VerbCheck), cl.lockName, ipc.CodeInternal, errFields.Error())
	}
	if own := c.leaseByID(id, nil); own != nil {
		own.extendDeadline(&cl.reply, 0) // the caller of Lock may not have run again yet
		own.endIfDue()
		if err := own.endedError(ipc.VerbCheck); err != nil {
			return nil, err
		}
		return own, nil
	}
	l := &Lease{c: c, name: cl.lockName, id: id, base: ctx, hold: HoldPID, found: true}
	l.setGrant(&cl.reply)
	if len(cl.req.Names) > 1 {
		l.names = slices.Clone(cl.req.Names)
	}
	if err := l.start(&cl.reply, &cl.req.Options); err != nil {
		return nil, err
	}
	own := c.leaseByID(id, l) // not earlier: others that find it need all of it
	switch {
	case own != l:
		l.end(ErrUnlocked, false) // nobody uses it
	case !l.isHeld(): // its timer was faster
		c.forget(l)
	case c.closed(): // Close may not have seen it
		l.endWithoutUnlock(lostError(l.name, "", ErrClosed))
	}
	return own, nil
}
