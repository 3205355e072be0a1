package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// ErrNotHeld means that no client holds the lock.
var ErrNotHeld = errors.New("not held")

// Force revokes a lock from its holder, or from all holders if several share it, and returns
// them. It deletes only tokens that a quorum of nodes shows. Another client may be acquiring the
// lock, and if Force deleted its votes as well, two clients could hold it. The nodes record each
// deleted token for the fleet's max_ttl, so that it does not return. A holder that uses this
// Quorum learns of the loss at once. Other holders learn of it at their next extension: until
// then, two clients may believe that they hold the lock.
//
// An exclusive lock is deleted a little more than PassWindow after the nodes recorded its
// token. By then no host passes it on ([Lease.HandOver]).
//
// Force waits for a quorum for at most some node timeouts, or until ctx is done. The error
// matches ErrNotHeld, ErrHeld or ErrNoQuorum. ErrHeld means that the nodes show several tokens,
// and none on a quorum: these contend, will expire, or never expire. It also means that the lock
// was handed over before each try to revoke it. After ErrNoQuorum the lock may be revoked on some
// nodes, and Force can be called again.
func (q *Quorum) Force(ctx context.Context, name string) ([]Holding, error) {
	err := error(&HeldError{Name: name})
	for range forceTries {
		var holders, forced []Holding
		if holders, err = q.holders(ctx, name); err != nil {
			return nil, err
		}
		if forced, err = q.forceHolders(ctx, name, holders); err == nil {
			return forced, nil
		}
		if !errors.Is(err, ErrHeld) {
			return nil, err
		}
	}
	return nil, err
}

// forceTries is how often Force looks up the holder: a busy lock is handed over many times
// a second.
const forceTries = 20

// holders returns the holders that a quorum shows.
func (q *Quorum) holders(ctx context.Context, name string) ([]Holding, error) {
	shown, err := q.Who(ctx, name)
	if err != nil {
		return nil, err
	}
	shown = slices.DeleteFunc(shown, func(h Holding) bool { return h.Waiting })
	holders := slices.DeleteFunc(slices.Clone(shown), func(h Holding) bool { return !q.system.Decides(h.nodes) })
	switch {
	case len(shown) == 0:
		return nil, fmt.Errorf("%s: %w by anybody", name, ErrNotHeld)
	case len(holders) == 0:
		return nil, q.undecidedError(name, &shown[0])
	}
	return holders, nil
}

// undecidedError returns the error for a lock of which too few nodes show the same token. The other
// nodes do not answer or show another token. An endless token does not expire.
func (q *Quorum) undecidedError(name string, holding *Holding) error {
	held := &HeldError{Name: name, Holder: holding.Holder, TTL: holding.TTL, Shared: holding.Shared, Slots: holding.Slots}
	if holding.TTL == Endless {
		return fmt.Errorf("%w; FORCE needs the same value on %d nodes, and at most %d of the %d that answered show one", held, q.system.Needed(), holding.Held, holding.Nodes)
	}
	return fmt.Errorf("%w; only %d of the %d nodes that answered show that, and FORCE needs %d: retry when more nodes answer, or wait until it expires",
		held, holding.Held, holding.Nodes, q.system.Needed())
}

// forceHolders deletes the tokens, and returns those that a quorum had until then. If a quorum had
// none of them, the error matches ErrHeld.
func (q *Quorum) forceHolders(ctx context.Context, name string, holders []Holding) (forced []Holding, err error) {
	for some := range slices.Chunk(holders, forceBatchSize) {
		gone, err := q.forceBatch(ctx, name, some)
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

// forceBatchSize is how many tokens one round deletes. Thousands of clients can share a lock,
// and their tokens would fill a lane and leave no room for other calls.
const forceBatchSize = node.MaxGroup

// forceBatch deletes some tokens, and returns those that a quorum had until then.
//
// A host may pass a lock on for a while after the nodes confirmed that it holds it
// (Lease.HandOver). So the nodes first record the token, which makes each later confirmation
// fail. Then forceBatch waits until no earlier confirmation counts. Otherwise a pass could follow
// the grant of another host, with a smaller fencing token.
func (q *Quorum) forceBatch(ctx context.Context, name string, holders []Holding) (forced []Holding, err error) {
	noted, err := q.forceBallots(ctx, script.NoteForced, name, holders)
	if err != nil {
		return nil, err
	}
	for _, h := range noted {
		q.keeper.loseForced(h.token)
	}
	if err := q.outwaitPasses(noted); err != nil {
		return nil, err
	}
	// If a quorum had the token, its holder is revoked, even if it released the lock meanwhile.
	_, err = q.forceBallots(context.WithoutCancel(ctx), script.Force, name, noted)
	return noted, err
}

// outwaitPasses waits until no holder can pass its lock on any more. The end of the caller's
// context does not end this wait, because the holders may know by now that they are revoked.
func (q *Quorum) outwaitPasses(holders []Holding) error {
	if !slices.ContainsFunc(holders, func(h Holding) bool { return h.Holder.Known() && !h.Shared && h.Slots == 0 }) {
		return nil
	}
	end := q.clock() + PassWindow + drift(PassWindow)
	for left := end - q.clock(); left > 0; left = end - q.clock() {
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-q.closing:
			timer.Stop()
			return ErrClosed
		}
	}
	return nil
}

// forceBallots makes the nodes record or delete the tokens, and returns those that a quorum had
// until then.
func (q *Quorum) forceBallots(ctx context.Context, op script.Opcode, name string, holders []Holding) (had []Holding, err error) {
	err = updated(func() (err error) {
		had, err = q.forceBallotsOnce(ctx, op, name, holders)
		return err
	})
	return had, err
}

func (q *Quorum) forceBallotsOnce(ctx context.Context, op script.Opcode, name string, holders []Holding) (had []Holding, err error) {
	ballots := make([]*ballot.Ballot, len(holders))
	for i, h := range holders {
		b := q.newBallot("force", ballot.IsGrant)
		ops := append(b.Ask(1), script.Operation{Op: op, Key: q.options.Prefix + name, Token: h.token, TTL: q.admission.LongestTTL()})
		q.call(node.Call{Op: b.Op, Ops: ops, Voter: b}, q.clock())
		ballots[i] = b
	}
	for i, b := range ballots {
		q.await(ctx, b)
		switch {
		case b.Won():
			had = append(had, holders[i])
		case b.LacksQuorum():
			return nil, q.noQuorumError(name, b)
		}
	}
	return had, nil
}
