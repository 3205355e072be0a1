package simulation

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// Stay is a token that nodes were seen to hold for nobody any more.
type Stay struct {
	Node    string
	Request *Request
	Token   string
	Attempt time.Duration // when its attempt began
	Dead    time.Duration // nobody holds it since, nor may somebody be about to
	Last    time.Duration // seen
	Copied  bool          // perhaps from another node
	Well    time.Duration // how long, while nobody held it, the node and its network were well
}

// stayAllowance is how long after all is well again a token may stay that
// somebody gave back: a silent connection must be given up (400 ms), or an
// attempt to connect (250 ms), and a new one made after a pause (250 ms).
const stayAllowance = 950 * time.Millisecond

// lookAtNodes notes the tokens that nodes hold for nobody.
func (w *world) lookAtNodes() {
	for _, n := range w.nodes {
		well := w.faults.wellSince(n)
		n.watchQuarantine(w.record.now(), slices.Max(well))
		if loss := w.faults.lossOf(n); loss != never && n.isAdmitted() {
			w.record.admitted(n, loss)
			w.checkCounters(n, w.copiedAt(n, loss))
		}
		n.Tokens(func(key, token string) { w.record.see(n, key, token, well) })
	}
}

// admitted: a node may vote that lost what it held at loss.
func (r *chronicle) admitted(n *simNode, loss time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if after := r.now() - loss; after < shortestQuarantine {
		r.report.violate("quarantine", r.now(), "node %s may vote %v after it lost what it held", n.Name(), after)
	}
}

// copying is what a node's epoch shows from outside: since when it has it, and when
// its counters were copied.
type copying struct {
	marker  string // the last one of a quarantine without counters: its run_id and word
	seen    time.Duration
	atLeast time.Duration // they were copied later

	epoch string       // that it has
	since atomic.Int64 // time.Duration
}

// watchQuarantine looks at a node that is well since then.
func (n *simNode) watchQuarantine(now, well time.Duration) {
	epoch := n.Do("HGET", redlocktest.NodeKey, "epoch").Str
	words := strings.Split(epoch, ":")
	if n.copies.epoch != epoch {
		n.copies.epoch = epoch
		n.copies.since.Store(int64(now))
	}
	if len(words) < 6 {
		return
	}
	marker := words[1] + words[2]
	switch c := &n.copies; {
	case words[0] == "pending" && words[4] == "lost":
		c.marker, c.seen = marker, now
	case words[0] == "admitted" && c.marker == marker:
		if at := c.seen - copyingLasts; at > well {
			c.atLeast = at
		}
		c.marker = ""
	}
}

// copyingLasts is how long before a node may vote its counters are copied, at
// most: others answer in time, and so does the node.
const copyingLasts = 3 * nodeTimeout

// copiedAt is when the counters of a node that lost them at loss were copied at the earliest.
// Where a quorum has lost theirs since, it may have none of others: it began anew.
func (w *world) copiedAt(n *simNode, loss time.Duration) time.Duration {
	if w.record.anewSince(loss) {
		return loss
	}
	return max(loss, n.copies.atLeast)
}

// checkCounters: a node that may vote again has no counter below a token that was
// given before its counters were copied.
func (w *world) checkCounters(n *simNode, copied time.Duration) {
	for _, lock := range w.locks {
		w.record.counter(n, lock, n.counter(lock, 0), copied)
	}
}

// counter is what the node counts for a lock, or a place of it.
func (n *simNode) counter(lock string, slot int) uint64 {
	key := redlock.DefaultPrefix + lock
	if slot > 0 {
		key += "\x00" + strconv.Itoa(slot)
	}
	counter, _ := strconv.ParseUint(n.Do("HGET", redlocktest.NodeKey, counterOf(key)).Str, 10, 64)
	return counter
}

func (r *chronicle) anewSince(loss time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.blackoutSince(loss)
}

func (r *chronicle) counter(n *simNode, lock string, counter uint64, copied time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.report.Grants {
		if slices.Contains(g.Locks, lock) && g.Slot == 0 && g.At < copied && g.Fence > counter && !r.report.blackoutSince(g.At) {
			r.report.violate("counters", r.now(), "node %s may vote again with a counter of %d for %s, but lease %d had the token %d", n.Name(), counter, lock, g.N, g.Fence)
			return
		}
	}
}

// shortestQuarantine is max_ttl by a host's clock that is fast.
const shortestQuarantine = simulatedMaxTTL - simulatedMaxTTL/250

// lookAtGrant notes which nodes hold a lock that has just been granted.
func (w *world) lookAtGrant(g *Grant) {
	g.Nodes = len(w.nodes)
	for _, n := range w.nodes {
		holds := !slices.ContainsFunc(g.Locks, func(lock string) bool {
			return !n.holds(lock, g.ID) || n.counter(lock, g.Slot) < g.Fence
		})
		switch {
		case holds && n.isAdmitted():
			g.Held++
		case w.faults.lossOf(n) >= g.Began || w.faults.restartOf(n) >= g.Began:
			g.Lapsed++
		}
	}
}

// counterOf returns the field of the fencing counter that a key belongs to. It repeats what
// the nodes' scripts do, because the 1,024 counters, each named by two letters, are a contract
// between all versions.
func counterOf(key string) (field string) {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	h := fnv.New32a()
	h.Write([]byte(key))
	n := h.Sum32() % 1024
	return string([]byte{letters[n/32], letters[n%32]})
}

// holds tells whether the lock is held there by that grant, alone or with others.
func (n *simNode) holds(lock, id string) (held bool) {
	n.Tokens(func(key, token string) {
		held = held || key == redlock.DefaultPrefix+lock && idOf(token) == id
	})
	return held
}

func (r *chronicle) see(n *simNode, key, token string, well []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(token, foreignToken) {
		return
	}
	pid, err := strconv.Atoi(field(token, "pid"))
	if err != nil || pid < 0 || pid >= len(r.report.Requests) {
		r.report.violate("foreign", r.now(), "node %s: %s holds %q, which nobody wrote", n.Name(), key, token)
		return
	}
	q := r.report.Requests[pid]
	now, id := r.now(), idOf(token)
	attempt := q.attemptOf(token)
	if n.releases.has(key, id) && !q.isOfFormer() {
		r.report.violate("order", now, "node %s holds a token of %s (lease %d of %s) that it has released before", n.Name(), q.By, q.N, q.Lock)
	}
	dead, ok := q.deadSince(id, attempt)
	if !ok || now < dead {
		return
	}
	stay := r.stay(n.Name(), id)
	stay.Copied = stay.Copied || n.copied.Load()
	stay.Request, stay.Attempt, stay.Dead, stay.Last = q, attempt, dead, now
	if q.Gone == never { // a daemon that is gone forgets, and one that thinks it has expired
		stay.Well = max(stay.Well, min(now, stay.latest())-max(dead, well[q.host.index]))
	}
}

// isOfFormer: the daemon that asked was killed, and another one has what it was about to
// take released, twice: bytes may still be under way on connections that it does not know.
// How long that stays on a node is judged all the same.
func (q *Request) isOfFormer() bool {
	_, life := q.host.daemon()
	return life != q.life
}

// stay needs mu.
func (r *chronicle) stay(node, token string) *Stay {
	key := node + token
	if r.stays[key] == nil {
		r.stays[key] = &Stay{Node: node, Token: token}
		r.report.Stays = append(r.report.Stays, r.stays[key])
	}
	return r.stays[key]
}

// attemptOf is when the attempt of a token began, which its host wrote into it
// in milliseconds.
func (q *Request) attemptOf(token string) time.Duration {
	since, _ := strconv.ParseInt(field(token, "since"), 10, 64)
	return q.host.sinceBegin(time.UnixMilli(since))
}

// field is the value of a word "key=value".
func field(token, key string) string {
	for word := range strings.FieldsSeq(token) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}

// deadSince is when the token of an attempt of the request was of no more use,
// if it is not. The caller holds the record's mu.
func (q *Request) deadSince(id string, attempt time.Duration) (since time.Duration, ok bool) {
	if g := q.Grant; g != nil && g.ID == id {
		return g.deadSince()
	}
	i := slices.IndexFunc(q.Failed, func(at time.Duration) bool { return at > attempt+time.Millisecond })
	switch {
	case i >= 0:
		return q.Failed[i], true
	case q.Grant != nil:
		return q.Grant.At, true
	}
	return q.Ended, q.Ended != never
}

// deadSince: a lease that was lost is given back at its deadline, and not
// before, whatever its holder does; nor before that is known, by a host whose clock
// stood still.
func (g *Grant) deadSince() (since time.Duration, ok bool) {
	switch {
	case g.Lost != never:
		return max(g.Until(), g.Lost), true
	case g.GaveUp != never:
		return g.Until(), true
	case g.Releasing != never:
		return g.Releasing, true
	}
	return g.Until(), true
}
