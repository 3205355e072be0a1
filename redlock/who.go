package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Endless is the TTL of a key without expiry, which no Redlock client sets.
const Endless time.Duration = 1<<63 - 1

// Holding is a token that nodes show for a lock.
type Holding struct {
	Holder Holder
	TTL    time.Duration // where it lasts longest; may be Endless
	Held   int           // nodes that show it
	Nodes  int           // nodes that answered

	token string
}

// Who asks the nodes who holds a lock, and waits for all of them, at most for
// the node timeout. It returns what may be a holder: a token that a quorum of
// nodes shows or could show if those that did not answer did. Several mean
// that it cannot be told; none that the lock is free. The error matches
// ErrNoQuorum where fewer than a quorum answered.
func (q *Quorum) Who(ctx context.Context, name string) ([]Holding, error) {
	b := q.newBallot("who", func(reply *Reply) bool { return len(reply.Array) == 0 })
	b.all = true
	now := q.clock()
	ops := b.ask(operation{letter: opWho, key: q.options.Prefix + name})
	q.call(call{op: b.op, ops: ops, voter: b}, now)
	b.wait(ctx, q.options.NodeTimeout, q.lanes)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if b.lacksQuorum() {
		return nil, q.noQuorum(name, b)
	}
	return slices.DeleteFunc(tally(b.answers), func(h Holding) bool { return h.Held+b.failed < q.quorum }), nil
}

// tally counts the tokens in the refusals, the one that most nodes show first.
func tally(answers []answer) []Holding {
	byToken := map[string]*Holding{}
	voted := 0
	for i := range answers {
		if answers[i].verdict != failed {
			voted++
		}
		token, ttl, ok := shown(answers[i].shown)
		if !ok {
			continue
		}
		h := byToken[token]
		if h == nil {
			h = &Holding{Holder: holderOf(token), token: token}
			byToken[token] = h
		}
		h.Held++
		h.TTL = max(h.TTL, ttl)
	}
	return sorted(byToken, voted)
}

func sorted(byToken map[string]*Holding, voted int) []Holding {
	all := make([]Holding, 0, len(byToken))
	for _, h := range byToken {
		h.Nodes = voted
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Holding) int { return cmp.Or(b.Held-a.Held, cmp.Compare(b.TTL, a.TTL)) })
	return all
}

// shown reads {value, pttl}, what a node answers of a key that is set. A key
// without expiry (a foreign SET) is shown with the longest time there is, and
// one in its last millisecond with a whole one: 0 would mean nobody.
func shown(reply *Reply) (token string, ttl time.Duration, ok bool) {
	if reply == nil || len(reply.Array) != 2 {
		return "", 0, false
	}
	ms := reply.Array[1].Int
	if ms < 0 {
		return reply.Array[0].Str, Endless, true
	}
	return reply.Array[0].Str, time.Duration(max(ms, 1)) * time.Millisecond, true
}
