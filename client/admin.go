package client

import (
	"context"

	"github.com/redlockd/redlockd/ipc"
)

// Forced is the result of Force.
type Forced struct {
	Holders int     // how many lost the lock; 0: nobody held it
	Holder  *Holder // the holder, if there was one and the nodes know it
	// Also lists the other locks of the same lease, which are lost too, as far as this daemon
	// knows. Nobody else can take them until their client has stopped, or until the deadline.
	Also []string
}

// Force takes the lock name away from its holders on all hosts: all readers, all slots. They are
// told, but may go on working until they notice, while others hold the lock already. Only root and
// the daemon's own user may call it or, if there are access rules, users with admin for the lock.
// For others the error matches ErrDenied. If it was not done, the error matches ErrNoQuorum.
//
// Force is sent only once: a second request would take the lock away from the next holder. If the
// daemon is restarted, or the connection ends, before the answer, nobody knows whether it was done.
// The error then matches ErrUnknown. Call Who to see who holds the lock now.
func (c *Client) Force(ctx context.Context, name string) (forced Forced, err error) {
	if err := checkName(ipc.VerbForce, name); err != nil {
		return forced, err
	}
	err = c.ask(ctx, ipc.VerbForce, name, "", func(cl *call) { forced = forcedOf(&cl.reply) })
	return forced, err
}

// forcedOf also reads the answer of a daemon that knows exclusive locks only: there, held=0 means
// nobody.
func forcedOf(r *ipc.Response) (forced Forced) {
	n, said := r.Int64("n")
	if !said {
		n = min(number(r, "held"), 1)
	}
	forced.Holders, forced.Also = int(n), r.Strings("also")
	if text(r, "host") != "" {
		holder := holderOf(r)
		forced.Holder = &holder
	}
	return forced
}

// Admit ends the quarantine of a node early, or with "all" of all nodes. It returns the names of
// the nodes that may vote from now on. That is safe for new nodes, on which nobody can hold a lock.
// Other nodes may have lost a lock, and then two clients can hold it. Only root and the daemon's
// own user may call it or, if there are access rules, users with admin for all locks. For others
// the error matches ErrDenied. It matches ErrInvalid if there is no such node, or it is not in
// quarantine. Admit is sent only once, like Force: the node may be in another quarantine by then.
// Call Status to see.
func (c *Client) Admit(ctx context.Context, node string) (nodes []string, err error) {
	if node == "" || len(node) > ipc.MaxWord {
		return nil, invalidError(op(ipc.VerbAdmit), "", ipc.CodeOption, "a node has a name of 1 to 200 bytes")
	}
	err = c.ask(ctx, ipc.VerbAdmit, "", node, func(cl *call) {
		for i := range cl.lines {
			nodes = append(nodes, text(&cl.lines[i], "node"))
		}
	})
	return nodes, err
}
