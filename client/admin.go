package client

import (
	"context"

	"github.com/redlockd/redlockd/ipc"
)

// Forced is the result of Force.
type Forced struct {
	Holders int     // number of holders that lost the lock; 0: it was free
	Holder  *Holder // the holder, if there was one and the nodes know it
	// Also lists the other locks of the same lease, which are lost too, as far as this daemon knows.
	// No other client can take them until the holder has stopped, or until the deadline.
	Also []string
}

// Force revokes the lock name on all hosts, for all its holders: all readers, all slots. The daemon
// tells the holders, but they may go on working until they notice, while other clients already hold
// the lock. Only root and the daemon's own user may call it or, if there are access rules, users
// with admin for the lock. For other users the error matches ErrDenied. If too few nodes agreed, it
// matches ErrNoQuorum.
//
// Force is sent only once: a second request would revoke the lock of the next holder. If the daemon
// restarts, or the connection ends, before the answer, the outcome is unknown and the error matches
// ErrUnknown. Call Who to see which client holds the lock now.
func (c *Client) Force(ctx context.Context, name string) (forced Forced, err error) {
	if err := checkName(ipc.VerbForce, name); err != nil {
		return forced, err
	}
	err = c.ask(ctx, ipc.VerbForce, name, "", func(cl *call) { forced = forcedOf(&cl.reply) })
	return forced, err
}

// forcedOf also reads the answer of an older daemon that knows exclusive locks only. Its held=0
// means that the lock was free.
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
// the nodes that may vote from now on. That is safe for new nodes, because no client can hold a
// lock there. Other nodes may have lost a lock, and then two clients can hold it. Only root and the
// daemon's own user may call it or, if there are access rules, users with admin for all locks. For
// other users the error matches ErrDenied. It matches ErrInvalid if there is no such node, or it is
// not in quarantine. Like Force, Admit is sent only once: when a second request arrives, the node
// may be in another quarantine. If the error matches ErrUnknown, call Status.
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
