package redlock

import (
	"math/bits"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// repair sets the key of a lease again on nodes (bits) that do not hold it,
// where nobody else has it, so that a lease outlives the loss of nodes one after
// the other. It is for leases that a quorum has just confirmed, and only as long
// as they are held: a lapsed lease never comes back. A node that was repaired
// counts from the next extension on, when it says itself that it holds the lock.
// The fencing token goes with the key: the next grant there is larger.
//
// The repairs are handed over under mu, and under each lane's within that: a release
// comes after, and travels behind them on every lane.
func (l *Lease) repair(nodes uint64) {
	if nodes == 0 {
		return
	}
	q := l.keeper.q
	now := q.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errAt(now) != nil {
		return
	}
	c := node.Call{
		Op: "repair",
		Ops: l.repairing(script.Operation{
			Token: l.token, Fence: l.fence,
			TTL: l.deadline - now + drift(l.ttl), // as on the other nodes
		}),
		NotAfter: min(now+q.options.NodeTimeout, l.deadline),
		Placed:   l.placed,
	}
	for ; nodes != 0; nodes &= nodes - 1 {
		q.counts.repairs.Add(1)
		q.lanes[bits.TrailingZeros64(nodes)].Do(c, now)
	}
}
