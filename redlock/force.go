package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// ErrNotHeld: nobody holds the lock.
var ErrNotHeld = errors.New("not held")

// Force takes a lock from its holder, or from all holders if several share it, and returns
// them. It deletes only the tokens that a quorum of nodes shows: another client may just be
// acquiring the lock, and deleting its votes as well would let two hold it. What it deleted
// is noted on the nodes for the fleet's max_ttl, so that it does not come back. A holder
// that uses this Quorum is told at once, others when they extend next: until then they
// believe to hold what others may hold already.
//
// It waits for a quorum at most for some node timeouts or until ctx is done. The
// error matches ErrNotHeld; ErrHeld where several tokens are shown and none by a
// quorum (they contend, or expire by themselves, or never do), or where the lock was handed on
// each time before it could be taken; or ErrNoQuorum: the lock may be forced on some
// nodes, and Force can be tried again.
func (q *Quorum) Force(ctx context.Context, name string) ([]Holding, error) {
	err := error(&HeldError{Name: name})
	for range forceTries {
		var holders, forced []Holding
		if holders, err = q.holders(ctx, name); err != nil {
			return nil, err
		}
		if forced, err = q.forceAway(ctx, name, holders); err == nil {
			return forced, nil
		}
		if !errors.Is(err, ErrHeld) {
			return nil, err
		}
	}
	return nil, err
}

// forceTries is how often it is found out who holds the lock: a busy one is handed
// on many times a second.
const forceTries = 20

// holders are those whom a quorum shows.
func (q *Quorum) holders(ctx context.Context, name string) ([]Holding, error) {
	shown, err := q.Who(ctx, name)
	if err != nil {
		return nil, err
	}
	shown = slices.DeleteFunc(shown, func(h Holding) bool { return h.Waiting })
	holders := slices.DeleteFunc(slices.Clone(shown), func(h Holding) bool { return h.Held < q.quorum })
	switch {
	case len(shown) == 0:
		return nil, fmt.Errorf("%s: %w by anybody", name, ErrNotHeld)
	case len(holders) == 0:
		return nil, q.undecided(name, &shown[0])
	}
	return holders, nil
}

// undecided is the error where too few nodes show a token: others that could do not
// answer, or show another one, which does not end by itself either.
func (q *Quorum) undecided(name string, most *Holding) error {
	held := &HeldError{Name: name, Holder: most.Holder, TTL: most.TTL, Shared: most.Shared, Slots: most.Slots}
	if most.TTL == Endless {
		return fmt.Errorf("%w; only what is the same on %d nodes can be taken away, and no more than %d of the %d that answered show one value", held, q.quorum, most.Held, most.Nodes)
	}
	return fmt.Errorf("%w; no more than %d of the %d nodes that answered show that, and it takes %d to take it away: try again when more of them answer, or have it end by itself",
		held, most.Held, most.Nodes, q.quorum)
}

// forceAway deletes those tokens, and returns which a quorum had until then. The
// error matches ErrHeld where it had none of them any more.
func (q *Quorum) forceAway(ctx context.Context, name string, holders []Holding) (forced []Holding, err error) {
	for some := range slices.Chunk(holders, forceAtOnce) {
		gone, err := q.forceSome(ctx, name, some)
		if err != nil {
			return nil, err
		}
		forced = append(forced, gone...)
	}
	if len(forced) == 0 {
		return nil, &HeldError{Name: name, Holder: holders[0].Holder, TTL: holders[0].TTL}
	}
	return forced, nil
}

// forceAtOnce is how many tokens are taken away together. Thousands can share a lock, and
// would be more than a lane has room for, and leave none to anybody else.
const forceAtOnce = node.MaxGroup

// forceSome returns those that a quorum had until then.
func (q *Quorum) forceSome(ctx context.Context, name string, holders []Holding) (forced []Holding, err error) {
	ballots := make([]*ballot.Ballot, len(holders))
	for i, h := range holders {
		b := q.newBallot("force", ballot.IsGrant)
		ops := append(b.Ask(1), script.Operation{Op: script.Force, Key: q.options.Prefix + name, Token: h.token, TTL: q.admission.LongestTTL()})
		q.call(node.Call{Op: b.Op, Ops: ops, Voter: b}, q.clock())
		ballots[i] = b
	}
	for i, b := range ballots {
		q.await(ctx, b)
		switch {
		case b.Won():
			forced = append(forced, holders[i])
			q.keeper.loseForced(holders[i].token)
		case b.LacksQuorum():
			return nil, q.noQuorum(name, b)
		}
	}
	return forced, nil
}
