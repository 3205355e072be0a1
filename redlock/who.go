package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Endless is the TTL of a key without expiry, which no Redlock client sets.
const Endless time.Duration = 1<<63 - 1

// Holding is a token that nodes show for a lock.
type Holding struct {
	Holder Holder
	TTL    time.Duration // where it lasts longest; may be Endless
	Held   int           // nodes that show it
	Nodes  int           // nodes that answered
	Shared bool          // with others
	Slots  int           // how many places there are, of a semaphore; 0: it is none
	Slot   int           // and which one it is
	// Waiting: nobody holds the lock. The nodes keep it for him, who has waited, for TTL
	// at most: it goes to nobody else.
	Waiting bool

	token string
}

// ID is Lease.ID of whoever it is, a secret; "" where the token is not one of ours.
func (h *Holding) ID() string {
	if _, token := splitMember(h.token); h.Holder.Known() {
		return token[:tokenID]
	}
	return ""
}

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
	if err == nil && b.showsMany() {
		b, err = q.list(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	barred := b.barred()
	return slices.DeleteFunc(tally(b.answers), func(h Holding) bool {
		return h.Held+b.failed < q.quorum && !(barred && h.TTL == Endless)
	}), nil
}

// look asks all nodes.
func (q *Quorum) look(ctx context.Context, name string, letter script.Opcode) (*ballot, error) {
	b := q.newBallot("who", func(reply *Reply) bool { return len(reply.Array) == 0 })
	b.all = true
	now := q.clock()
	ops := b.ask(script.Operation{Op: letter, Key: q.options.Prefix + name})
	q.call(node.Call{Op: b.op, Ops: ops, Voter: b}, now)
	q.await(ctx, b)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if b.lacksQuorum() {
		return nil, q.noQuorum(name, b)
	}
	return b, nil
}

// list asks for all of many, for one caller at a time: what nodes say to a few such questions
// together is more than is read of one that is well (respScanner), and its connection would
// be ended. Those who have waited meanwhile are told what the next one for that lock was: a
// crowd that asks is no long line, in which FORCE would wait.
func (q *Quorum) list(ctx context.Context, name string) (*ballot, error) {
	asked := q.clock()
	q.listers.Add(1)
	defer q.listers.Add(-1)
	select {
	case q.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-q.listing }()
	if last := q.listed; last.name == name && last.began > asked {
		q.keepListed(last)
		return last.b, nil
	}
	began := q.clock()
	b, err := q.look(ctx, name, script.List)
	if err != nil {
		return nil, err
	}
	q.keepListed(listed{name, began, b})
	return b, nil
}

// listed is what was told last, and of which lock.
type listed struct {
	name  string
	began time.Duration // BootTime before the nodes were asked
	b     *ballot
}

// keepListed keeps it for those who wait; it can be long.
func (q *Quorum) keepListed(l listed) {
	if q.listers.Load() == 1 {
		l = listed{}
	}
	q.listed = l
}

// showsMany tells whether a node has said no more than that many share the lock.
func (b *ballot) showsMany() bool {
	return slices.ContainsFunc(b.answers, func(a answer) bool {
		return a.shown != nil && len(a.shown.Array) == 2 && script.IsSharing(a.shown.Array[0].Str)
	})
}

// barred tells that keys without an expiry are on so many nodes that nobody can have the
// lock, whatever their values are, until somebody deletes them: that is no contest, which ends.
func (b *ballot) barred() bool {
	nodes := 0
	for i := range b.answers {
		if slices.ContainsFunc(shown(b.answers[i].shown), func(s showing) bool { return s.kind == "" && s.ttl == Endless }) {
			nodes++
		}
	}
	return nodes > len(b.answers)-b.quorum
}

// tally counts the tokens in the refusals, the one that most nodes show first.
func tally(answers []answer) []Holding {
	byToken := map[string]*Holding{}
	voted := 0
	for i := range answers {
		if answers[i].verdict != failed {
			voted++
		}
		for _, one := range shown(answers[i].shown) {
			h := byToken[one.token]
			if h == nil {
				h = one.holding()
				byToken[one.token] = h
			}
			h.Held++
			h.TTL = max(h.TTL, one.ttl)
		}
	}
	return sorted(byToken, voted)
}

// kindShown is in which way the lock is shared, as more than half of those who
// refused it show; "": there is no such way.
func (b *ballot) kindShown() string {
	nodes := map[string]int{}
	for i := range b.answers {
		kind := b.answers[i].kind()
		if kind == "" {
			continue
		}
		if nodes[kind]++; 2*nodes[kind] > b.refused {
			return kind
		}
	}
	return ""
}

// kind is in which way several share the lock, as the node shows; "": one holds it,
// or none.
func (a *answer) kind() string {
	if a.shown == nil || len(a.shown.Array) < 4 || !script.IsSharing(a.shown.Array[0].Str) {
		return ""
	}
	return a.shown.Array[0].Str
}

func sorted(byToken map[string]*Holding, voted int) []Holding {
	all := make([]Holding, 0, len(byToken))
	for _, h := range byToken {
		h.Nodes = voted
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Holding) int {
		return cmp.Or(b.Held-a.Held, cmp.Compare(b.TTL, a.TTL), cmp.Compare(a.token, b.token))
	})
	return all
}

// showing is a token that one node shows.
type showing struct {
	token string
	kind  string // "": the lock is one's alone
	ttl   time.Duration
}

func (s *showing) holding() *Holding {
	h := &Holding{token: s.token, Shared: s.kind == script.KindShared, Slots: script.SlotsOf(s.kind), Waiting: script.IsWaiting(s.kind)}
	token := s.token
	if h.Slots > 0 {
		h.Slot, token = splitMember(s.token)
	}
	h.Holder = holderOf(token)
	return h
}

// shown reads {value, pttl}, what a node answers of a key that is set; or where
// several share it, {kind, pttl, token, pttl…}.
func shown(reply *Reply) []showing {
	if reply == nil || len(reply.Array) < 2 {
		return nil
	}
	items := reply.Array
	if kind := items[0].Str; script.IsSharing(kind) && len(items) > 2 {
		all := []showing{}
		for i := 2; i+1 < len(items); i += 2 {
			all = append(all, showing{items[i].Str, kind, lasting(items[i+1].Int)})
		}
		return all
	}
	return []showing{{token: items[0].Str, ttl: lasting(items[1].Int)}}
}

// lasting is how long a key lasts. One without expiry (a foreign SET), or with one
// in centuries, is shown with the longest time there is, and one in its last
// millisecond with a whole one: 0 would mean nobody.
func lasting(ms int64) time.Duration {
	if ms < 0 || ms > int64(Endless/time.Millisecond) {
		return Endless
	}
	return time.Duration(max(ms, 1)) * time.Millisecond
}
