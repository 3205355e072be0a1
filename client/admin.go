package client

import (
	"context"

	"github.com/redlockd/redlockd/ipc"
)

// Forced is what Force has done.
type Forced struct {
	Holders int     // from how many the lock was taken; 0: nobody held it
	Holder  *Holder // who it was, where it was one and the nodes tell
	// Also are the other locks that were held by the same request, and are lost with
	// this one, as far as this daemon knows: nobody can have them before their client
	// has stopped, or until its deadline.
	Also []string
}

// Force takes the lock name from whoever holds it, on whatever host: all readers,
// all slots. They are told, but may be at work until they notice, while others
// hold the lock already. It is for root and the daemon's own user or, where there
// are access rules, for whoever has admin for the lock: the error matches ErrDenied
// for others, and ErrNoQuorum where it was not done.
//
// It is asked for once: a second time it would be taken from who got it in between.
// Where the daemon is restarted, or the connection ends, before it has answered, whether
// it was done is not known, and the error says so: it matches ErrShutdown or
// ErrUnavailable. Who tells who holds the lock now.
func (c *Client) Force(ctx context.Context, name string) (forced Forced, err error) {
	if err := checkName(ipc.VerbForce, name); err != nil {
		return forced, err
	}
	err = c.ask(ctx, ipc.VerbForce, name, "", func(cl *call) { forced = forcedOf(&cl.reply) })
	return forced, err
}

// forcedOf also reads a daemon that knows exclusive locks only: held=0 is nobody there.
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

// Admit ends the quarantine of a node early, or with "all" that of all nodes, and
// returns the names of those whose votes count from now on. That is safe for
// nodes that are new, on which no lock can be held; others may have forgotten
// one, which two hold then. It is for root and the daemon's own user or, where there
// are access rules, for whoever has admin for every lock: the error matches ErrDenied
// for others, and ErrInvalid where there is no such node, or none in quarantine any
// more. Like Force it is asked for once, as the node may be in another quarantine by
// then: Status tells.
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
