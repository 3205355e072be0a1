package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrNotHeld: nobody holds the lock.
var ErrNotHeld = errors.New("not held")

// Force takes a lock from whoever holds it, all of them where several share it, and
// returns who that was. It deletes the tokens that a quorum of nodes shows and no
// other: somebody may just be
// getting the lock, and to delete his votes as well would let two have it. What
// it deleted is noted on the nodes for the fleet's max_ttl, so that it does not
// come back. A holder that uses this Quorum is told at once, others when they
// extend next: until then they believe to hold what others may hold already.
//
// It waits for a quorum at most for two node timeouts or until ctx is done. The
// error matches ErrNotHeld; ErrHeld where several tokens are shown and none by a
// quorum: they contend, or expire by themselves; or ErrNoQuorum: the lock may be
// forced on some nodes, and Force can be tried again.
func (q *Quorum) Force(ctx context.Context, name string) ([]Holding, error) {
	shown, err := q.Who(ctx, name)
	if err != nil {
		return nil, err
	}
	holders := slices.DeleteFunc(slices.Clone(shown), func(h Holding) bool { return h.Held < q.quorum })
	switch {
	case len(shown) == 0:
		return nil, fmt.Errorf("%s: %w by anybody", name, ErrNotHeld)
	case len(holders) == 0:
		return nil, &HeldError{Name: name, TTL: shown[0].TTL}
	}
	b := q.newBallot("force", func(*Reply) bool { return true })
	ops := make([]operation, len(holders))
	for i, h := range holders {
		ops[i] = operation{letter: opForce, key: q.options.Prefix + name, token: h.token, ttl: q.longestTTL()}
	}
	q.call(call{op: b.op, ops: ops, voter: b}, q.clock())
	b.wait(ctx, q.options.NodeTimeout, q.lanes)
	if !b.won() {
		return nil, q.noQuorum(name, b)
	}
	for _, h := range holders {
		q.keeper.forced(h.token)
	}
	return holders, nil
}

// forced says LOST for a lease of ours that was forced away.
func (k *keeper) forced(token string) {
	k.mu.Lock()
	at := slices.IndexFunc(k.heap, func(l *Lease) bool { return l.token == token })
	var l *Lease
	if at >= 0 {
		l = k.heap[at]
	}
	k.mu.Unlock()
	if l != nil {
		l.lose(LostForced)
	}
}
