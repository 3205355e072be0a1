package redlock

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Waiting is a request that stands in the nodes' wait queue of a lock. Of a host's clients that want
// a lock exclusively, only the first one stands there.
type Waiting struct {
	Holder Holder        // the client that waits
	For    time.Duration // for how long it has waited
	Nodes  int           // the number of nodes that have it in their queues
}

// queuesOf returns the waiters in the nodes' descriptions of a lock, by node: see DESCRIBE in
// ballot.lua. A node that failed has nil.
func queuesOf(replies []*redis.Reply) []*redis.Reply {
	queues := make([]*redis.Reply, len(replies))
	for node, reply := range replies {
		if reply != nil {
			queues[node] = &reply.Array[1]
		}
	}
	return queues
}

// mergeQueues returns the waiters in the nodes' queues, in the order of their tickets. The queue of
// a node that did not answer is nil. A ticket is the same on all nodes, so the waiter that has
// waited for the longest time is the first. A waiter that is missing on a quorum may have left.
func mergeQueues(queues []*redis.Reply, system quorum.System) []Waiting {
	byToken, tokens := map[string]*Waiting{}, []string(nil)
	answered, on := quorum.Set(0), map[string]quorum.Set{}
	for node, queue := range queues {
		if queue == nil {
			continue
		}
		answered |= quorum.Of(node)
		for i := 0; i+1 < len(queue.Array); i += 2 {
			token, waited := queue.Array[i].Str, time.Duration(queue.Array[i+1].Int)*time.Millisecond
			w := byToken[token]
			if w == nil {
				w = &Waiting{Holder: holderOf(token)}
				byToken[token] = w
				tokens = append(tokens, token)
			}
			w.For = max(w.For, waited)
			w.Nodes++
			on[token] |= quorum.Of(node)
		}
	}
	all := make([]Waiting, 0, len(tokens))
	for _, token := range tokens {
		if w := byToken[token]; w.Holder.Known() && !system.Decides(answered&^on[token]) {
			all = append(all, *w)
		}
	}
	slices.SortStableFunc(all, func(a, b Waiting) int { return cmp.Compare(b.For, a.For) })
	return all
}

// isCalled reports whether a quorum of nodes calls waiters when a lock is released.
func (q *Quorum) isCalled() bool {
	var callers quorum.Set
	for i, l := range q.lanes {
		if l.CallsWaiters() {
			callers |= quorum.Of(i)
		}
	}
	return q.system.Decides(callers)
}

// turn returns for how long a node keeps a lock free for a waiter of this host: a few round trips,
// so that a call and the attempt after it fit in, with a margin for a busy host.
func (q *Quorum) turn() time.Duration {
	return min(max(shortestTurn, turnTrips*q.roundTrip()), max(q.options.NodeTimeout, shortestTurn))
}

const (
	shortestTurn = 50 * time.Millisecond
	turnTrips    = 5
)

// roundTrip returns the duration of a round trip to a quorum of nodes; 0: it is not known.
func (q *Quorum) roundTrip() time.Duration {
	trip := quorum.AtMost(q.system, func(node int) time.Duration { return cmp.Or(q.lanes[node].RoundTripTime(), never) })
	if trip == never {
		return 0
	}
	return trip
}

// ticket returns the position of a request in the queues: when its client asked, on the nodes'
// clocks. The clocks of all hosts follow the same nodes, so an earlier request has a smaller
// ticket, on every node.
func (q *Quorum) ticket(asked time.Duration) time.Duration {
	if sinceEpoch, known := q.admission.QuorumTime(asked); known {
		return sinceEpoch
	}
	return time.Duration(q.options.Wall().UnixNano()) - (q.clock() - asked)
}

// contention remembers which locks were contended: a request had to wait for them. The next request
// will probably wait, too, so its first attempt enters the nodes' wait queues. Locks with the same
// counter count as one, which costs an operation, no call.
type contention [script.MaxCounters]atomic.Int64 // until which instant of the clock

// contendedFor is for how long a lock counts as contended after a grant.
const contendedFor = time.Second

func (c *contention) note(t *target, now time.Duration) {
	c[script.Bucket(t.key)].Store(int64(now + contendedFor))
}

func (c *contention) has(t *target, now time.Duration) bool {
	return int64(now) < c[script.Bucket(t.key)].Load()
}

// Entry is a request in the nodes' wait queues. A request for several names stands in the queue of one of
// them: see acquisition.stand.
type Entry struct {
	q      *Quorum
	target target
	waiter *node.Waiter
	ticket time.Duration
	queues []string // the keys in whose queues it stands, sorted
}

// Enter puts a request into the nodes' wait queues although it does not ask for the lock yet: it
// waits for readers of this host. So readers of other hosts do not overtake it. Use it only if no
// reader of this host waits before it. The caller must pass the Entry to Acquire (Request.Entry), or
// call End. Enter does not wait for the nodes.
func (q *Quorum) Enter(r Request) (*Entry, error) {
	if err := q.check(&r); err != nil {
		return nil, err
	}
	t := q.target(&r)
	e := q.newEntry(&r, &t, q.ticket(r.asked(q.clock())), q.turn())
	e.Renew()
	return e, nil
}

// newEntry returns an entry in the queue of the first name. Its turns are that long.
func (q *Quorum) newEntry(r *Request, t *target, ticket, turn time.Duration) *Entry {
	r.Holder.Since = q.options.Wall()
	return &Entry{q: q, target: *t, ticket: ticket, waiter: q.waiters.Join(t.key, t.kind, turn, newToken(r.Holder), q.system), queues: []string{slices.Min(t.keys())}}
}

// ops appends an operation for each queue.
func (e *Entry) ops(ops []script.Operation, op script.Opcode) []script.Operation {
	for _, key := range e.queues {
		ops = append(ops, script.Operation{Op: op, Key: key, Token: e.waiter.Entry, Ticket: e.ticket})
	}
	return ops
}

// Renew enters the request again where it is missing. Call it at least every RenewEntry.
func (e *Entry) Renew() {
	e.q.call(node.Call{Op: "enter", Ops: e.ops(nil, script.Reenter), Waiter: e.waiter}, e.q.clock())
}

// RenewEntry is how often a waiter makes sure that it is in the queues. A node forgets a queue
// after three times as long (QUEUE_TTL in queue.lua).
const RenewEntry = 20 * time.Second

// End removes the entry from the queues. Like a release, it is repeated on the nodes until they
// have answered, or the queue has expired there. If it is lost, the entry gets a turn, and the host
// then gives it up.
func (e *Entry) End() {
	e.q.waiters.Leave(e.waiter)
	e.leave()
}

// leave leaves all queues.
func (e *Entry) leave() {
	if len(e.queues) == 0 {
		return
	}
	now := e.q.clock()
	e.q.call(node.Call{Op: "done", Ops: e.ops(nil, script.EndWait), Placed: &e.waiter.Placed, Until: now + endWaitFor}, now)
}

const endWaitFor = 3 * RenewEntry
