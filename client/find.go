package client

import (
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

// find asks for a lease that was granted to another connection.
func (c *Client) find(ctx context.Context, names []string, which func(*call)) (*Lease, error) {
	if err := checkNames(ipc.VerbCheck, names); err != nil {
		return nil, err
	}
	cl := newCall(ipc.VerbCheck, strings.Join(names, ","))
	cl.req.Names = slices.Clone(names)
	cl.lease = &Lease{c: c, name: cl.lockName, base: ctx, hold: HoldPID, isFound: true, lateCheck: defaultLateCheck}
	if len(names) > 1 {
		cl.lease.names = cl.req.Names
	}
	which(cl)
	if err := c.do(ctx, cl); err != nil {
		return nil, err
	}
	return cl.lease, nil
}
