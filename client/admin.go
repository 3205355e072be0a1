package client

import (
	"context"
	"time"

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

func forcedOf(r *ipc.Response) (forced Forced) {
	forced.Holders, forced.Also = int(number(r, "n")), r.Strings("also")
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

// NodeChange is a change of the nodes while locks are held, as this host's daemon sees it.
type NodeChange struct {
	// Step is how far the change in this host's config is: "begins", "begun" (it can be committed, or
	// undone), "committed" or "done"; "": the config has no joining or leaving nodes.
	Step    string
	Nodes   []Node
	Hosts   []ChangeHost
	Unseen  bool          // too few nodes said which hosts use them, so Hosts may lack some
	Behind  []string      // nodes that vote and do not have the next step yet
	Missing []string      // nodes that do not vote
	Left    time.Duration // about how long the step lasts; 0: it waits for an operator, or nobody knows
	// Conflict means that nodes are in another change.
	Conflict bool
	Next     string // what to do next, for people
}

// ChangeHost is a host that uses nodes which are being changed.
type ChangeHost struct {
	Name string
	List string        // "old", "joint" (both lists), "new" or "other"
	Seen time.Duration // how long ago a node last heard of it
}

// Nodes returns how far a change of the nodes is. Only the users that may call Admit for all nodes may
// call it. For other users the error matches ErrDenied.
func (c *Client) Nodes(ctx context.Context) (*NodeChange, error) { return c.nodes(ctx, "") }

// CommitNodes commits the change of the nodes in the config of this host: from then on, hosts with the
// old list get no vote. The error matches ErrInvalid if that cannot be done now, and says why: most
// often, because hosts with the old list are at work, which it names. To call it again changes nothing.
func (c *Client) CommitNodes(ctx context.Context) (*NodeChange, error) { return c.nodes(ctx, "commit") }

// UndoNodes undoes a change of the nodes that is not committed. The config of this host must have the
// old list. The error matches ErrInvalid if that cannot be done now.
func (c *Client) UndoNodes(ctx context.Context) (*NodeChange, error) { return c.nodes(ctx, "undo") }

func (c *Client) nodes(ctx context.Context, verb string) (change *NodeChange, err error) {
	err = c.ask(ctx, ipc.VerbNodes, "", verb, func(cl *call) {
		r := &cl.reply
		change = &NodeChange{
			Step: text(r, "change"), Unseen: text(r, "unseen") == "yes", Behind: r.Strings("behind"), Missing: r.Strings("missing"),
			Left: duration(r, "left"), Conflict: text(r, "conflict") == "yes", Next: r.Text,
		}
		for i := range cl.lines {
			line := &cl.lines[i]
			if name := text(line, "host"); name != "" {
				change.Hosts = append(change.Hosts, ChangeHost{Name: name, List: text(line, "list"), Seen: duration(line, "seen")})
			} else {
				change.Nodes = append(change.Nodes, nodeOf(line))
			}
		}
	})
	return change, err
}
