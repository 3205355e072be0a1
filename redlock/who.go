package redlock

import (
	"context"
	"slices"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Who returns the possible holders of a lock. It asks all nodes, and waits for at most the node
// timeout. A possible holder is a token that a quorum shows, or could show if the nodes that
// failed had answered. A key without expiry that keeps every client from acquiring the lock
// counts as a holder, too. If an exclusive lock has several possible holders, it is unknown which
// of them holds it. No holder means that the lock is free. If the lock is free, and it is the turn of a
// waiter to take it, Who returns the waiter as Waiting. If fewer nodes than a quorum answered, the
// error matches ErrNoQuorum. For a lock with more than a hundred holders, Who serves one caller
// after the other.
func (q *Quorum) Who(ctx context.Context, name string) ([]Holding, error) {
	return q.shownHolders(ctx, name, q.whoTurn)
}

// WhoWaits does what Who does, and also returns the requests that wait for the lock on any host, in
// their order: at most the first 64. Each node gets one call for both. A request that waits
// asks no node for that.
func (q *Quorum) WhoWaits(ctx context.Context, name string) ([]Holding, []Waiting, error) {
	var s *ballot.Survey
	err := updated(func() error {
		s = ballot.NewSurvey("who", len(q.lanes), q.system)
		key := q.options.Prefix + name
		ops := []script.Operation{{Op: script.Who, Key: key}, {Op: script.Describe, Key: key}}
		q.call(node.Call{Op: s.Op, Ops: ops, Voter: s}, q.clock())
		q.await(ctx, s.Ballot)
		return q.surveyError(ctx, name, s.Ballot)
	})
	if err != nil {
		return nil, nil, err
	}
	b, waiters := ballot.ShowingBallot(s.Replies(0), q.system), mergeQueues(queuesOf(s.Replies(1)), q.system)
	if b.ShowsMany() {
		if b, err = q.listHolders(ctx, name, q.whoTurn); err != nil {
			return nil, nil, err
		}
	}
	return q.possibleHolders(b), waiters, nil
}

// shownHolders does what Who says. To list many holders, a caller waits for its turn first. With a
// nil turn, which is for Force, it waits for one other caller at most.
func (q *Quorum) shownHolders(ctx context.Context, name string, turn chan struct{}) ([]Holding, error) {
	b, err := q.askHolders(ctx, name, script.Who)
	if err == nil && b.ShowsMany() {
		b, err = q.listHolders(ctx, name, turn)
	}
	if err != nil {
		return nil, err
	}
	return q.possibleHolders(b), nil
}

// possibleHolders returns the possible holders according to the answers.
func (q *Quorum) possibleHolders(b *ballot.Ballot) []Holding {
	barred := b.IsBlockedForever()
	return slices.DeleteFunc(countTokens(b.Answers), func(h Holding) bool {
		return !q.system.Decides(h.nodes|b.Failed) && !(barred && h.TTL == Endless)
	})
}

// askHolders asks all nodes for the holders of a lock, with the operation Who or List.
func (q *Quorum) askHolders(ctx context.Context, name string, op script.Opcode) (*ballot.Ballot, error) {
	var b *ballot.Ballot
	err := updated(func() error {
		b = q.newBallot("who", func(reply *Reply) bool { return len(reply.Array) == 0 })
		b.WaitsForAll = true
		ops := append(b.Ask(1), script.Operation{Op: op, Key: q.options.Prefix + name})
		q.call(node.Call{Op: b.Op, Ops: ops, Voter: b}, q.clock())
		q.await(ctx, b)
		return q.surveyError(ctx, name, b)
	})
	return b, err
}

// surveyError returns why the answers to a survey do not count; nil: they do.
func (q *Quorum) surveyError(ctx context.Context, name string, b *ballot.Ballot) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.LacksQuorum():
		return q.noQuorumError(name, b)
	}
	return nil
}

// listHolders asks for all holders of a lock that many clients share. It serves one caller at a
// time: the answers to a few such requests together exceed what a connection may receive (see the
// reply reader of internal/redis), and would end the connection. Callers that wait for the same
// lock share the next result.
func (q *Quorum) listHolders(ctx context.Context, name string, turn chan struct{}) (*ballot.Ballot, error) {
	asked := q.clock()
	q.listWaiters.Add(1)
	defer q.listWaiters.Add(-1)
	if turn != nil {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case q.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-q.listing }()
	if last := q.lastList; last.name == name && last.began > asked {
		q.setListResult(last)
		return last.b, nil
	}
	began := q.clock()
	b, err := q.askHolders(ctx, name, script.List)
	if err != nil {
		return nil, err
	}
	q.setListResult(listResult{name, began, b})
	return b, nil
}

// setListResult stores the result for callers that wait. If there are none, it drops the result,
// because it can be long.
func (q *Quorum) setListResult(l listResult) {
	if q.listWaiters.Load() == 1 {
		l = listResult{}
	}
	q.lastList = l
}
