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
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// StrayToken is a token that was seen on a node although no client uses it.
type StrayToken struct {
	Node        string
	Request     *Request
	Token       string
	Attempt     time.Duration // when its attempt began
	UnusedSince time.Duration // since when no client holds it, and no attempt may still be granted with it
	Last        time.Duration // when it was last seen
	Copied      bool          // it may come from another node
	HealthyFor  time.Duration // how long the node and its network had no fault while no client held it
}

// strayAllowance is how long a released token may stay on a node after all faults have ended and the
// daemon has connected. The daemon must give up an unresponsive connection first (400 ms).
const strayAllowance = 950 * time.Millisecond

// lookAtNodes records the tokens that nodes hold for no client.
func (w *world) lookAtNodes() {
	for _, n := range w.nodes {
		healthySince := w.faults.healthySince(n)
		n.watchQuarantine(w.record.now(), slices.Max(healthySince))
		if loss := w.faults.lossOf(n); loss != never && n.isAdmitted() {
			w.record.admitted(n, loss)
			w.checkCounters(n, w.copiedAt(n, loss))
		}
		connectedSince := w.faults.connectedSince(n)
		w.turns.lookAtQueues(n, connectedSince)
		n.Tokens(func(key, token string) { w.record.see(n, key, token, connectedSince) })
	}
}

// admitted checks that a node that lost its data at the instant loss does not vote too early.
func (r *recorder) admitted(n *simNode, loss time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if after := r.now() - loss; after < shortestQuarantine {
		r.report.violate("quarantine", r.now(), "node %s may vote %v after it lost its data", n.Name(), after)
	}
}

// copying is what a node's epoch shows: since when the node has had it, and when its counters were
// copied.
type copying struct {
	marker  string // the run_id and word of the last quarantine without counters
	seen    time.Duration
	atLeast time.Duration // the counters were copied after this instant

	epoch string       // the node's epoch
	since atomic.Int64 // time.Duration
}

// watchQuarantine reads the epoch of a node that has had no fault since the given instant.
func (n *simNode) watchQuarantine(now, healthySince time.Duration) {
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
		if at := c.seen - copyingLasts; at > healthySince {
			c.atLeast = at
		}
		c.marker = ""
	}
}

// copyingLasts is the longest time between the copying of a node's counters and its vote, if this
// node and the other nodes answer in time.
const copyingLasts = 3 * nodeTimeout

// copiedAt returns the earliest instant at which the counters were copied to a node that lost them
// at the instant loss. If a quorum has lost its counters since, the node may have started without
// copies.
func (w *world) copiedAt(n *simNode, loss time.Duration) time.Duration {
	if w.record.countersLostSince(loss) {
		return loss
	}
	return max(loss, n.copies.atLeast)
}

// checkCounters checks that a node that may vote again has no counter below a token that was
// granted before the counters were copied.
func (w *world) checkCounters(n *simNode, copied time.Duration) {
	for _, lock := range w.locks {
		w.record.counter(n, lock, n.counter(lock, 0), copied)
	}
}

// counter returns the node's counter of a lock, or of one slot of it.
func (n *simNode) counter(lock string, slot int) uint64 {
	key := redlock.DefaultPrefix + lock
	if slot > 0 {
		key += "\x00" + strconv.Itoa(slot)
	}
	counter, _ := strconv.ParseUint(n.Do("HGET", redlocktest.NodeKey, counterOf(key)).Str, 10, 64)
	return counter
}

func (r *recorder) countersLostSince(loss time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.countersLostSince(loss)
}

func (r *recorder) counter(n *simNode, lock string, counter uint64, copied time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.report.Grants {
		if slices.Contains(g.Locks, lock) && g.Slot == 0 && g.At < copied && g.Fence > counter && !r.report.countersLostSince(g.At) {
			r.report.violate("counters", r.now(), "node %s may vote again with a counter of %d for %s, but lease %d had the token %d", n.Name(), counter, lock, g.N, g.Fence)
			return
		}
	}
}

// shortestQuarantine is max_ttl by the clock of a host whose clock runs fast.
const shortestQuarantine = simulatedMaxTTL - simulatedMaxTTL/250

// lookAtGrant records which nodes hold a lock that was just granted.
func (w *world) lookAtGrant(g *Grant) {
	g.Nodes = len(w.nodes)
	began := g.began(true)
	for _, n := range w.nodes {
		if at, confirmed := n.confirmations.of(g.TokenID); confirmed && at >= g.Passed-window {
			g.Confirmed++
		}
		holds := !slices.ContainsFunc(g.Locks, func(lock string) bool {
			return !n.holds(lock, g.TokenID) || n.counter(lock, g.Slot) < g.Fence
		})
		switch {
		case holds && n.isAdmitted():
			g.Held++
		case w.faults.lossOf(n) >= began || w.faults.restartOf(n) >= began:
			g.Lapsed++
		}
	}
}

// lookAtDowngrade checks, after a downgrade that began at the given instant has succeeded, that a
// quorum of nodes has the lock as shared. It does not count nodes that lost the lock meanwhile.
func (w *world) lookAtDowngrade(g *Grant, began time.Duration) {
	if w.plan.Steps {
		return // a key expires early if the clock of its node was stepped
	}
	shared, lapsed := 0, 0
	for _, n := range w.nodes {
		shares := !slices.ContainsFunc(g.Locks, func(lock string) bool {
			return n.Get(redlock.DefaultPrefix+lock) != simredis.KindShared || !n.holds(lock, g.TokenID) && !n.holds(lock, g.NewTokenID)
		})
		switch {
		case shares && n.isAdmitted():
			shared++
		case w.faults.lossOf(n) >= began || w.faults.restartOf(n) >= began:
			lapsed++
		}
	}
	w.record.downgraded(g, shared, lapsed, len(w.nodes))
}

// counterOf returns the field of the fencing counter of a key, as the nodes' scripts compute it.
// All versions must agree on the 1,024 counters, which have names of two letters.
func counterOf(key string) (field string) {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	h := fnv.New32a()
	h.Write([]byte(key))
	n := h.Sum32() % 1024
	return string([]byte{letters[n/32], letters[n%32]})
}

// holds reports whether the grant with this id holds the lock on the node, alone or with others.
func (n *simNode) holds(lock, id string) (held bool) {
	n.Tokens(func(key, token string) {
		held = held || key == redlock.DefaultPrefix+lock && idOf(token) == id
	})
	return held
}

func (r *recorder) see(n *simNode, key, token string, healthySince []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(token, foreignToken) {
		return
	}
	pid, err := strconv.Atoi(field(token, "pid"))
	if err != nil || pid < 0 || pid >= len(r.report.Requests) {
		r.report.violate("foreign", r.now(), "node %s: %s holds %q, which no client wrote", n.Name(), key, token)
		return
	}
	q := r.report.Requests[pid]
	now, id := r.now(), idOf(token)
	attempt := q.attemptOf(token)
	owner, granted := r.tokens[id]
	if n.releases.has(key, id) && !q.isOfKilledDaemon() {
		r.report.violate("order", now, "node %s holds a token of %s (lease %d of %s) that it has already released", n.Name(), q.By, q.N, q.Lock)
	}
	unused, ok := q.unusedSince(id, attempt)
	if passed := granted && owner.request != q; passed {
		if unused, ok = owner.unusedSince(id); ok {
			attempt = unused // the lease may have been extended until then
		}
	}
	if g := q.Grant; g != nil && g.has(id) && g.Kept != never {
		attempt = unused // the lease was extended until then
	}
	if !ok || now < unused {
		return
	}
	stray := r.stray(n.Name(), id)
	stray.Copied = stray.Copied || n.copied.Load()
	stray.Request, stray.Attempt, stray.UnusedSince, stray.Last = q, attempt, unused, now
	if q.DaemonEnded == never { // a daemon forgets a token when it ends, or when the token should have expired
		stray.HealthyFor = max(stray.HealthyFor, min(now, stray.latest())-max(unused, healthySince[q.host.index]))
	}
}

// isOfKilledDaemon reports whether the daemon of the request was killed. The next daemon releases,
// twice, what the killed one was about to acquire. But the killed daemon's connections may still
// deliver bytes later. The time that such a token stays on a node is checked nevertheless.
func (q *Request) isOfKilledDaemon() bool {
	_, life := q.host.daemon()
	return life != q.life
}

// stray returns the StrayToken of a token on a node, and creates it if needed. The caller holds mu.
func (r *recorder) stray(node, token string) *StrayToken {
	key := node + token
	if r.strayTokens[key] == nil {
		r.strayTokens[key] = &StrayToken{Node: node, Token: token}
		r.report.StrayTokens = append(r.report.StrayTokens, r.strayTokens[key])
	}
	return r.strayTokens[key]
}

// attemptOf returns when the attempt of a token began. The token contains that time in
// milliseconds, by the clock of its host.
func (q *Request) attemptOf(token string) time.Duration {
	since, _ := strconv.ParseInt(field(token, "since"), 10, 64)
	return q.host.sinceBegin(time.UnixMilli(since))
}

// field returns the value of the first word "key=value" of a token.
func field(token, key string) string {
	for word := range strings.FieldsSeq(token) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}

// unusedSince returns when the token of an attempt of the request became useless. ok is false if the
// token may still be used. The caller holds the record's mu.
func (q *Request) unusedSince(id string, attempt time.Duration) (since time.Duration, ok bool) {
	if g := q.Grant; g != nil && g.has(id) {
		return g.unusedSince()
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

// unusedSince returns when a token that was passed on to the owner became useless. The caller holds
// the record's mu.
func (o tokenOwner) unusedSince(id string) (since time.Duration, ok bool) {
	q := o.request
	if g := q.Grant; g != nil && g.TokenID == id {
		return g.unusedSince()
	}
	i := slices.IndexFunc(q.Failed, func(at time.Duration) bool { return at >= o.since })
	switch {
	case i >= 0:
		return q.Failed[i], true
	case q.Grant != nil: // it was granted with another token
		return q.Grant.At, true
	}
	return q.Ended, q.Ended != never
}

// unusedSince returns when the token of a lease becomes useless. A daemon releases a lost lease at
// its deadline, not earlier, whatever the holder does. If the host's clock stopped, the daemon
// releases it only when it notices the loss.
func (g *Grant) unusedSince() (since time.Duration, ok bool) {
	switch {
	case g.Lost != never:
		return max(g.Until(), g.Lost), true
	case g.GaveUp != never:
		return g.Until(), true
	case g.Releasing != never:
		return max(g.Releasing, g.Kept), true
	}
	return g.Until(), true
}
