package redlock

import (
	"context"
	"slices"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Who asks the nodes who holds a lock, and waits for all of them, at most for
// the node timeout. It returns what may be a holder: a token that a quorum of
// nodes shows or could show if those that did not answer did; or what has no expiry, where
// nobody can have the lock for that. Several mean
// that it cannot be told; none that the lock is free. Where nobody holds it, it may
// be kept for somebody, who is returned as Waiting. The error matches ErrNoQuorum
// where fewer than a quorum answered. Of a lock that more than a hundred share, one after
// the other is told.
func (q *Quorum) Who(ctx context.Context, name string) ([]Holding, error) {
	b, err := q.look(ctx, name, script.Who)
	if err == nil && b.ShowsMany() {
		b, err = q.list(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	barred := b.Barred()
	return slices.DeleteFunc(tally(b.Answers), func(h Holding) bool {
		return h.Held+b.Failed < q.quorum && !(barred && h.TTL == Endless)
	}), nil
}

// look asks all nodes.
func (q *Quorum) look(ctx context.Context, name string, letter script.Opcode) (*ballot.Ballot, error) {
	b := q.newBallot("who", func(reply *Reply) bool { return len(reply.Array) == 0 })
	b.All = true
	now := q.clock()
	ops := append(b.Ask(1), script.Operation{Op: letter, Key: q.options.Prefix + name})
	q.call(node.Call{Op: b.Op, Ops: ops, Voter: b}, now)
	q.await(ctx, b)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if b.LacksQuorum() {
		return nil, q.noQuorum(name, b)
	}
	return b, nil
}

// list asks for all holders of a lock with many, for one caller at a time: what nodes say to a few such questions
// together is more than is read of one that is well (respScanner), and its connection would
// be ended. Those who have waited meanwhile are told what the next one for that lock was: a
// crowd that asks is no long line, in which FORCE would wait.
func (q *Quorum) list(ctx context.Context, name string) (*ballot.Ballot, error) {
	asked := q.clock()
	q.listWaiters.Add(1)
	defer q.listWaiters.Add(-1)
	select {
	case q.listTurn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-q.listTurn }()
	if last := q.lastList; last.name == name && last.began > asked {
		q.keepListResult(last)
		return last.b, nil
	}
	began := q.clock()
	b, err := q.look(ctx, name, script.List)
	if err != nil {
		return nil, err
	}
	q.keepListResult(listResult{name, began, b})
	return b, nil
}

// keepListResult keeps the result for the callers that wait; it can be long.
func (q *Quorum) keepListResult(l listResult) {
	if q.listWaiters.Load() == 1 {
		l = listResult{}
	}
	q.lastList = l
}
