package client

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/ipc"
)

// LeaseOf is the lease with HoldPID that a process holds, 0 being this one, by
// whichever connection this user took it; by its name, or of several all names in the order
// in which they were locked. It is kept as it was, and its Unlock gives it back; its
// loss is noticed when the daemon is asked, half way to the deadline. The error
// matches ErrNotHeld if there is none, ErrLost if it was lost, and ErrDenied for
// what cannot be one.
func (c *Client) LeaseOf(ctx context.Context, pid int, names ...string) (*Lease, error) {
	if pid == 0 {
		pid = os.Getpid()
	}
	return c.find(ctx, names, func(cl *call) {
		cl.req.PID = pid
		cl.req.Set |= ipc.OptPID
	})
}

// LeaseByID is the lease with that ID, which another connection took: whoever knows
// the ID may unlock it. What else is said of LeaseOf goes for it as well.
func (c *Client) LeaseByID(ctx context.Context, id string, names ...string) (*Lease, error) {
	return c.find(ctx, names, func(cl *call) {
		cl.req.Lease = id
		cl.req.Set |= ipc.OptLease
	})
}

// find asks for a lease that was granted to another connection. One of this
// Client's own is as it was.
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
		own.extendDeadline(&cl.reply, 0) // whoever asked for it may not have run again yet
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
	own := c.leaseByID(id, l) // not before: others that find it have all of it
	switch {
	case own != l:
		l.end(ErrUnlocked, false) // nobody has it
	case !l.isHeld(): // its timer was faster
		c.forget(l)
	case c.closed(): // Close may not have seen it
		l.endWithoutUnlock(lostError(l.name, "", ErrClosed))
	}
	return own, nil
}
