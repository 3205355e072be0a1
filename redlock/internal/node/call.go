package node

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Call is what a ballot sends to one node: an operation for each key. The extension of many
// leases is also one call.
type Call struct {
	Op      string // for errors: "acquire"
	Ops     []script.Operation
	Several bool // the call is for several leases
	// Urgent calls, which extend held leases, are sent before others. A full queue does not
	// refuse them, and they wait for at most one group.
	Urgent bool

	// NotAfter of an acquire and a repair is the BootTime after which the lane must not send it
	// and the node must not execute it. 0: no such bound.
	NotAfter time.Duration
	// Until of a release is the BootTime at which the key has expired. Until then the release is
	// repeated, unless the node has answered.
	Until time.Duration
	// Placed has the nodes that may have the token, in an acquire, a repair, a release, or a call
	// about a waiter.
	Placed *NodeSet
	// Release of a hand-over is the release that it contains. If the hand-over fails, the release
	// is sent alone.
	Release *Call
	Waiter  *Waiter // its entry is put into the queue if the call is refused; nil: none
	Voter   Voter   // gets the answer; may be nil
}

// IsRelease reports whether the call removes a lock, or a waiter, from the node and needs no
// vote. A lane never drops such a call.
func (c *Call) IsRelease() bool { return c.Ops[len(c.Ops)-1].Op.Releases() }

// weight returns how many operations the call counts as when calls are put into one command.
func (c *Call) weight() (n int) {
	for i := range c.Ops {
		n += weightOf(c.Ops[i].Op)
	}
	return n
}

// weightOf returns how much of a command an operation takes, of MaxOps. To show holders, to share a lock, and to
// call waiters may take longer than others: see the table of costs in ALGORITHM.md.
func weightOf(op script.Opcode) int {
	switch op {
	case script.Who, script.Describe:
		return 8
	case script.Join, script.Enter, script.Reenter, script.Force, script.Downgrade, script.RepairShared:
		return 4
	case script.Release, script.EndWait:
		return 2
	}
	return 1
}

// isCut reports whether the call is sent in several commands, because the largest one could take too long: it
// releases many names, and nothing depends on doing that at once.
func (c *Call) isCut() bool {
	return len(c.Ops) > maxReleases && c.IsRelease() && !c.Ops[0].Op.Takes()
}

// maxReleases is how many operations of such a call are in one command.
const maxReleases = MaxOps / 2

// markSent records that the call will be sent to node.
func (c *Call) markSent(node int) {
	if c.Placed != nil && !c.IsRelease() {
		c.Placed.Add(node)
	}
	if c.Waiter != nil {
		c.Waiter.noteSent(node)
	}
}

// markNotSent records that a token which would have taken the lock is not on the node. (It does
// not record this for a repair, because other keys of the lease may be there.)
func (c *Call) markNotSent(node int) {
	if c.Placed != nil && c.Ops[0].Op.Takes() {
		c.Placed.remove(node)
	}
}

// noteAnswer records what the node's answer says of the token of an acquire and of the entry of its
// waiter. A node that refused an exclusive acquire does not have the token, and needs no release.
func (c *Call) noteAnswer(node int, replies []redis.Reply) {
	if op := c.Ops[0].Op; (op == script.Acquire || op == script.AcquireAlso && c.isExclusive()) && replies[0].Err == nil && replies[0].Int == 0 {
		c.Placed.remove(node)
	}
	if c.Waiter == nil {
		return
	}
	position := 0
	for i := range replies {
		if op := c.Ops[i].Op; op == script.Enter || op == script.Reenter {
			position = max(position, int(replies[i].Int))
		}
	}
	c.Waiter.notePosition(node, position)
}

// hasWritten reports whether the answers show that the node wrote to its data. (It does not for a
// lock that it refused. Other answers may hide a write.)
func (c *Call) hasWritten(replies []redis.Reply) bool {
	for i := range replies {
		switch op, reply := c.Ops[i].Op, &replies[i]; {
		case op.Takes() && script.IsFencedGrant(fenceReply(reply)),
			(op == script.Extend || op == script.Confirm || op == script.Release) && reply.Int > 0:
			return true
		}
	}
	return false
}

// isExclusive reports whether an acquire of several names is exclusive.
func (c *Call) isExclusive() bool {
	return !slices.ContainsFunc(c.Ops, func(o script.Operation) bool { return o.Op == script.Join })
}

// Voter gets a node's answer to a call: a reply for each operation, or a failure. Vote is called
// once for each node, on any goroutine. It must not block or keep replies.
type Voter interface {
	Vote(node int, replies []redis.Reply, failure *Error)
}

// NodeSet is a set of nodes by index.
type NodeSet struct{ bits atomic.Uint64 }

// Has reports whether node is in the set.
func (s *NodeSet) Has(node int) bool { return s.bits.Load()&(1<<node) != 0 }

// Add adds node.
func (s *NodeSet) Add(node int)    { s.bits.Or(1 << node) }
func (s *NodeSet) remove(node int) { s.bits.And(^(uint64(1) << node)) }

// pendingRelease is a release that the node has not answered yet.
type pendingRelease struct {
	ops   []script.Operation
	until time.Duration
}

// checkSpan checks the answer to a command of many operations: a list with one element per
// operation, or an error. An error within an element becomes the element's error.
func checkSpan(calls []Call, reply *redis.Reply) error {
	if reply.Err != nil {
		return nil
	}
	ops := 0
	for i := range calls {
		ops += len(calls[i].Ops)
	}
	if !reply.IsList() || len(reply.Array) != ops {
		return redis.UnexpectedAnswer(calls[0].Op, fmt.Sprintf("a list of %d", ops), reply)
	}
	at := 0
	for i := range calls {
		for j := range calls[i].Ops {
			o, several := &calls[i].Ops[j], j > 0 && calls[i].Ops[j-1].Op == script.AcquireAlso
			if err := script.CheckReply(o, calls[i].Op, several || o.Op == script.AcquireAlso, &reply.Array[at]); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}
