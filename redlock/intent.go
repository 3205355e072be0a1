package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Intent keeps readers of other hosts from overtaking somebody who wants a lock
// for himself, and has to wait for readers on this host before he asks for it.
type Intent struct {
	q      *Quorum
	target target
	waiter *node.Waiter
	r      Request
}

// Intend has the nodes refuse those who would like to share the lock that r wants,
// where others share it: from now on for r.TTL (half a second at least), or until the lock is taken or End.
// The nodes refuse all alike: it is for who waits for nobody but those who hold the
// lock already. It is to be given to Acquire, as Request.Intent, or to be ended. It
// does not wait for the nodes.
func (q *Quorum) Intend(r Request) (*Intent, error) {
	if err := q.check(&r); err != nil {
		return nil, err
	}
	i := &Intent{q: q, target: q.target(&r), r: r}
	i.r.Holder.Since = q.options.Wall()
	i.waiter = q.bells.Join(i.target.keys(), newToken(i.r.Holder), q.quorum)
	i.Renew()
	return i, nil
}

// Renew has it last for r.TTL from now on.
func (i *Intent) Renew() {
	ops := i.target.each(nil, script.Operation{Op: script.IntendWrite, Token: i.waiter.Mark, TTL: i.lasts()})
	i.q.call(node.Call{Op: "mark", Ops: ops, Placed: &i.waiter.Marked}, i.q.clock())
}

// End has nobody be kept out for it any more. What tells the nodes is repeated as a
// release is, until it is answered, or no mark can be there.
func (i *Intent) End() {
	i.q.bells.Leave(i.waiter)
	now := i.q.clock()
	ops := i.target.each(nil, script.Operation{Op: script.EndWait, Token: i.waiter.Mark})
	i.q.call(node.Call{Op: "done", Ops: ops, Placed: &i.waiter.Marked, Until: now + i.lasts() + drift(i.lasts())}, now)
}

// lasts is how long the nodes know of it.
func (i *Intent) lasts() time.Duration { return max(i.r.TTL, leastMark) }
