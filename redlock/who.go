package redlock

import (
	"context"
	"slices"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Who returns the possible holders of a lock. It asks all nodes, and waits for at most the node
// timeout, or several times that if more than a hundred clients share the lock. A possible holder is a token that a quorum shows, or could show if the nodes that
// failed had answered. A key without expiry that keeps every client from acquiring the lock
// counts as a holder, too. If an exclusive lock has several possible holders, it is unknown which
// of them holds it. No holder means that the lock is free. If the lock is free, and it is the turn of a
// waiter to take it, Who returns the waiter as Waiting. If fewer nodes than a quorum answered, the
// error matches ErrNoQuorum.
func (q *Quorum) Who(ctx context.Context, name string) ([]Holding, error) {
	holders, _, err := q.askWho(ctx, name, false)
	return holders, err
}

// WhoWaits does what Who does, and also returns the requests that wait for the lock on any host, in
// their order: at most the first 64. Each node gets one call for both. A request that waits
// asks no node for that.
func (q *Quorum) WhoWaits(ctx context.Context, name string) ([]Holding, []Waiting, error) {
	return q.askWho(ctx, name, true)
}

// askWho asks all nodes for the holders of a lock, and if waits is set, for its waiters. The holders of a
// shared lock come in pages. All nodes show them in the same order, which no extension changes, so each
// holder that has the lock all the time is on one of the pages.
func (q *Quorum) askWho(ctx context.Context, name string, waits bool) (holders []Holding, waiters []Waiting, err error) {
	var shown []*redis.Reply // by node; nil: it failed
	for after, more := "", true; more; {
		s, err := q.askPage(ctx, name, after, waits && shown == nil)
		if err != nil {
			return nil, nil, err
		}
		pages := s.Replies(0)
		if shown == nil {
			shown = make([]*redis.Reply, len(pages))
			for node, page := range pages {
				if page != nil {
					shown[node] = &redis.Reply{}
				}
			}
			if waits {
				waiters = mergeQueues(queuesOf(s.Replies(1)), q.system)
			}
		}
		after, more = ballot.AddPages(shown, pages)
	}
	return q.possibleHolders(ballot.ShowingBallot(shown, q.system)), waiters, nil
}

// askPage asks all nodes for the holders after a token.
func (q *Quorum) askPage(ctx context.Context, name, after string, waits bool) (s *ballot.Survey, err error) {
	key := q.options.Prefix + name
	ops := []script.Operation{{Op: script.Who, Key: key, Token: after}}
	if waits {
		ops = append(ops, script.Operation{Op: script.Describe, Key: key})
	}
	err = updated(func() error {
		s = ballot.NewSurvey("who", len(q.lanes), q.system)
		q.call(node.Call{Op: s.Op, Ops: ops, Voter: s}, q.clock())
		q.await(ctx, s.Ballot)
		return q.surveyError(ctx, name, s.Ballot)
	})
	return s, err
}

// possibleHolders returns the possible holders according to the answers.
func (q *Quorum) possibleHolders(b *ballot.Ballot) []Holding {
	barred := b.IsBlockedForever()
	return slices.DeleteFunc(countTokens(b.Answers), func(h Holding) bool {
		return !q.system.Decides(h.nodes|b.Failed) && !(barred && h.TTL == Endless)
	})
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
