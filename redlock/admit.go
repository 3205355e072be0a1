package redlock

import (
	"context"
	"fmt"
)

// Admit ends the quarantine of a node at once, for all processes that use it.
// It is for nodes that are brand-new: the caller knows that no lock can be held
// that they voted for. Where that is wrong, two can hold one lock. Counters are
// copied from the other nodes as far as these may vote. It returns when the node
// may vote, within about 16 node timeouts; the error matches ErrNotQuarantined, or
// ErrNotAdmitted and says why.
func (q *Quorum) Admit(ctx context.Context, node string) error {
	for _, l := range q.lanes {
		if l.Name() == node {
			return l.AdmitNow(ctx)
		}
	}
	return fmt.Errorf("%w: there is no node %q", ErrRequest, node)
}
