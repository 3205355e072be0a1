package redlock

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// extension is a ballot on many leases at once: one call per node, and one count per lease. Each
// lease is decided by its own deciding answer.
type extension struct {
	k         *keeper
	start     time.Duration       // before the first byte is sent
	missed    time.Duration       // the time that this host's clock had missed by then
	freshness admission.Freshness // how recent this host's knowledge of the nodes was at start
	leases    []*Lease
	ttls      []time.Duration
	done      chan struct{} // closed when every lease is decided

	passed      []confirmation // by lease: set if it is passed on; nil: no lease is
	exchanges   uint64         // leases whose two tokens are sent to the nodes, as bits
	exchangeOps int            // number of operations before those of the leases
	byClient    bool           // a client requested it: the lease gets the new ttl
	onDecided   func()         // called when every lease is decided and enough nodes have answered; may be nil

	mu        sync.Mutex   // guards what follows, and the counts of passed; released before a lease is notified; only a hostLease's mutex is taken inside it
	granted   []quorum.Set // by lease
	refused   []quorum.Set
	missing   []quorum.Set // by lease: nodes that did not hold it
	notified  uint64       // leases that have their new deadline, as bits
	decided   uint64       // leases that a quorum has confirmed, or that no quorum can hold, as bits; a lease stays decided if nodes refuse hosts with the old list meanwhile
	forced    []bool       // by lease: a node reported that FORCE revoked it
	answered  quorum.Set
	voters    quorum.Set // nodes that answered for each lease
	failed    quorum.Set // nodes that failed until every lease was decided
	failures  []*NodeError
	refusal   *NodeError // an error that concerns a single lease
	undecided int        // leases that are not decided
	timedOut  bool       // the node timeout has passed
	hasEnded  bool       // onDecided was called, or is about to be
	timer     *time.Timer
}

func newExtension(k *keeper, leases []*Lease, now time.Duration) *extension {
	n := len(leases)
	e := &extension{
		k:         k,
		start:     now,
		missed:    k.q.admission.TotalMissed(),
		freshness: k.q.freshness(now),
		leases:    leases,
		ttls:      make([]time.Duration, n),
		done:      make(chan struct{}),
		granted:   make([]quorum.Set, n),
		refused:   make([]quorum.Set, n),
		missing:   make([]quorum.Set, n),
		forced:    make([]bool, n),
		undecided: n,
	}
	for i, l := range leases {
		e.ttls[i] = l.TTL()
	}
	return e
}

// send sends the calls to the nodes, and sets the timer that bounds their answers.
func (e *extension) send() {
	ops := make([]script.Operation, 0, len(e.leases))
	var first []script.Operation
	for i, l := range e.leases {
		o := e.operation(i, l)
		if ops = l.appendForKeys(ops, o); o.Op == script.Downgrade && o.OldToken != "" {
			o.Op = script.Exchange
			first = l.appendForKeys(first, o)
		}
	}
	if first != nil { // a node exchanges the token before it makes the lease shared
		e.exchangeOps, ops = len(first), append(first, ops...)
	}
	e.mu.Lock()
	e.timer = time.AfterFunc(e.k.q.options.NodeTimeout, e.onTimeout)
	e.mu.Unlock()
	// The keeper bounds how many of its extensions are in progress. Extensions that clients
	// request are not bounded. They need not be, because the keeper extends kept leases anyway.
	e.k.q.call(node.Call{Op: "extend", Ops: ops, Several: len(e.leases) > 1 || e.exchangeOps > 0, Urgent: e.onDecided != nil, Voter: e}, e.start)
}

// operation returns the operation that extends the i-th lease.
func (e *extension) operation(i int, l *Lease) script.Operation {
	token := l.tokens()
	o := script.Operation{Op: script.Extend, Token: token.current, OldToken: token.former, TTL: e.ttls[i]}
	switch {
	case e.confirms(i):
		e.k.q.hooks.confirming()
		o.Op, o.Fence = script.Confirm, e.passed[i].raiseTo
	case l.isDowngraded(): // a node may have missed the downgrade
		o.Op = script.Downgrade
	case token.former != "":
		o.Op = script.Exchange
	}
	if token.former != "" {
		e.exchanges |= 1 << i
	}
	return o
}

// Vote counts one node's answers, and notifies the leases that they decide.
func (e *extension) Vote(node int, replies []Reply, failure *NodeError) {
	o := e.count(node, replies, failure)
	e.notify(o)
	for _, i := range o.repair {
		e.repair(i, quorum.Of(node))
	}
}

// outcomes lists the leases that one answer decided, by index.
type outcomes struct {
	confirmed, gone, undecided []int
	passable                   []int // a quorum of nodes confirmed that they may be passed on
	repair                     []int // confirmed earlier, but not held by the node that answered
	last                       bool  // every lease is decided now
	ended                      bool  // and enough nodes have answered
}

func (e *extension) count(node int, replies []Reply, failure *NodeError) (o outcomes) {
	if failure == nil {
		replies = e.byLease(replies[e.exchangeOps:])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answered |= quorum.Of(node)
	if failure == nil {
		e.voters |= quorum.Of(node)
		defer func() { o.passable = e.countPassedLocked(node, replies) }()
	}
	isLate := e.undecided == 0
	if failure == nil {
		o = e.countRepliesLocked(node, replies)
	} else if !isLate {
		e.failures, e.failed = append(e.failures, failure), e.failed|quorum.Of(node)
	}
	if !isLate {
		if e.answered == quorum.First(len(e.k.q.lanes)) || e.k.q.system.Blocks(e.failed) {
			o.undecided = e.closeLocked()
		}
		if o.last = e.undecided == 0; o.last {
			e.timer.Stop()
		}
	}
	o.ended = e.isOverLocked()
	return o
}

// isOverLocked returns true once: when every lease is decided and enough nodes have answered. (A node
// that the extension no longer waits for answers later, or its connection breaks. More requests
// meanwhile would make it even slower.) The caller holds mu.
func (e *extension) isOverLocked() bool {
	if e.hasEnded || e.undecided > 0 || e.timedOut && !e.k.q.system.Decides(e.answered) {
		return false
	}
	e.hasEnded = true
	return true
}

// byLease returns one reply for each lease. For a lease of several keys it is the worst of
// its replies.
func (e *extension) byLease(replies []Reply) []Reply {
	if len(replies) == len(e.leases) {
		return replies
	}
	one := make([]Reply, len(e.leases))
	for i, l := range e.leases {
		one[i] = slices.MinFunc(replies[:l.width()], compareReplies)
		if one[i].Int == 1 && slices.ContainsFunc(replies[:l.width()], func(r Reply) bool { return r.Int == confirmedAndWanted }) {
			one[i].Int = confirmedAndWanted
		}
		replies = replies[l.width():]
	}
	return one
}

// compareReplies orders the answers to an extension: no vote, revoked, not held, held.
func compareReplies(a, b Reply) int {
	if (a.Err == nil) != (b.Err == nil) {
		return cmp.Compare(voteRank(a), voteRank(b))
	}
	return cmp.Compare(a.Int, b.Int)
}

func voteRank(r Reply) int {
	if r.Err != nil {
		return 0
	}
	return 1
}

// countRepliesLocked counts a node's reply for each lease. A reply that arrives after the ballot ended can
// still confirm a lease while the keeper retries. Otherwise every extension would fail if the nodes are
// slower than the node timeout, and the leases would be lost. A late reply is as good as one in time if
// the old deadline has not passed. The caller holds mu.
func (e *extension) countRepliesLocked(node int, replies []Reply) (o outcomes) {
	isLate := e.undecided == 0
	o.repair = e.toRepairLocked(node, replies)
	for i := range replies {
		switch {
		case e.isDecidedLocked(i) || e.isStaleRefusalLocked(i, &replies[i]) || isLate && e.byClient:
		case replies[i].Err != nil: // not a vote
			e.refusal = e.failure(node, FailedError, replies[i].Err)
		case e.noteHeldLocked(i, node, &replies[i]):
			if e.granted[i] |= quorum.Of(node); e.k.q.system.Decides(e.granted[i]) {
				o.confirmed = append(o.confirmed, i)
				e.decided |= 1 << i
			}
		case !isLate:
			if e.refused[i] |= quorum.Of(node); e.k.q.system.CannotRecover(e.refused[i]) {
				o.gone = append(o.gone, i)
				e.decided |= 1 << i
			}
		}
	}
	if !isLate {
		e.undecided -= len(o.confirmed) + len(o.gone)
	}
	return o
}

// isStaleRefusalLocked reports whether a node refused only because a downgrade or an exchange followed
// the beginning of the extension. Such a refusal does not count: the node may have the lock as
// shared, and so not confirm it, or have the new token. The caller holds the extension's mu.
func (e *extension) isStaleRefusalLocked(i int, reply *Reply) bool {
	if reply.Err != nil || reply.Int != 0 {
		return false
	}
	l := e.leases[i]
	return e.confirms(i) && l.isDowngraded() || l.tokens().former != "" && e.exchanges&(1<<i) == 0
}

// noteHeldLocked reports whether a node held a lease, and records it if not. If the lease is missing
// there, its key can be set again. If the lease was revoked, the node refuses that. The caller
// holds mu.
func (e *extension) noteHeldLocked(lease, node int, reply *Reply) bool {
	switch {
	case reply.Int >= 1:
		return true
	case reply.Int < 0:
		e.forced[lease] = true
	default:
		e.missing[lease] |= quorum.Of(node)
	}
	return false
}

// toRepairLocked returns the leases that a quorum has confirmed (in a change of the nodes, a majority of the
// old list) and that the answering node does not hold. A lease whose new deadline is not set yet is
// repaired when it is set. Otherwise its key would expire on that node at the old deadline. The caller
// holds mu.
func (e *extension) toRepairLocked(node int, replies []Reply) (repair []int) {
	for i := range replies {
		switch {
		case replies[i].Err != nil || replies[i].Int != 0 || !e.k.q.system.MayRepair(e.granted[i]):
		case e.notified&(1<<i) == 0:
			e.missing[i] |= quorum.Of(node)
		default:
			repair = append(repair, i)
		}
	}
	return repair
}

// isDecidedLocked reports whether a lease is decided. The caller holds mu.
func (e *extension) isDecidedLocked(i int) bool { return e.decided&(1<<i) != 0 }

// closeLocked ends the ballot, and returns the undecided leases. The caller holds mu.
func (e *extension) closeLocked() (undecided []int) {
	for i := range e.leases {
		if !e.isDecidedLocked(i) {
			undecided = append(undecided, i)
		}
	}
	e.undecided = 0
	return undecided
}

// onTimeout ends the ballot when the node timeout has passed.
func (e *extension) onTimeout() {
	e.mu.Lock()
	o := outcomes{last: e.undecided > 0}
	if o.last {
		e.timedOut = true
		o.undecided, o.ended = e.closeLocked(), e.isOverLocked()
		for i := range e.k.q.lanes {
			if !e.answered.Has(i) { // it counts as failed
				e.failures = append(e.failures, e.failure(i, FailedTimeout, e.k.q.lanes[i].Late(e.k.q.options.NodeTimeout)))
			}
		}
	}
	e.mu.Unlock()
	e.notify(o)
}

func (e *extension) failure(node int, kind Failure, err error) *NodeError {
	return &NodeError{Node: e.k.q.lanes[node].Name(), Op: "extend", Failure: kind, Err: err}
}

// cause returns why a lease stayed undecided. The caller does not hold mu.
func (e *extension) cause(i int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	failures := e.failures
	if len(failures) == 0 && e.refusal != nil {
		failures = []*NodeError{e.refusal}
	}
	return &NoQuorumError{
		Name:    e.leases[i].name(),
		Granted: e.granted[i].Len(),
		Needed:  e.k.q.system.Needed(),
		Failed:  failures,
		Retry:   e.k.q.options.NodeTimeout,
	}
}

func (e *extension) notify(o outcomes) {
	var latest time.Duration
	if len(o.confirmed) > 0 {
		e.mu.Lock()
		voters := e.voters
		e.mu.Unlock()
		latest = e.k.q.admission.LatestDeadline(e.freshness, voters)
	}
	for _, i := range o.confirmed {
		e.k.confirmed(e.leases[i], e.start, e.missed, latest, e.ttls[i], e.byClient)
		e.mu.Lock()
		e.notified |= 1 << i
		missing := e.missing[i]
		e.mu.Unlock()
		e.repair(i, missing)
	}
	for _, i := range o.passable {
		e.allowPass(i)
	}
	for _, i := range o.gone { // no quorum can hold it
		reason := LostQuorum
		if e.forced[i] { // it does not change once the lease is decided
			reason = LostForced
		}
		e.leases[i].loseCurrent(reason)
	}
	for _, i := range o.undecided {
		if e.confirms(i) {
			e.passed[i].host.fail()
		}
		e.k.retry(e.leases[i], e.ttls[i], e.cause(i))
		e.mu.Lock()
		missing, mayRepair := e.missing[i], e.k.q.system.MayRepair(e.granted[i])
		e.mu.Unlock()
		if mayRepair { // in a change of the nodes: it is on a majority of the old list, and missing on nodes of the new one
			e.repair(i, missing)
		}
	}
	if o.last {
		close(e.done)
	}
	if o.ended && e.onDecided != nil {
		e.onDecided()
	}
}

// repair repairs a lease that the extension confirmed.
func (e *extension) repair(i int, nodes quorum.Set) {
	e.leases[i].current().repair(nodes, e.exchanges&(1<<i) != 0)
}

// repair sets the key of a lease again on nodes that do not hold it. A node refuses if
// another client has the key. So a lease outlives the loss of nodes one after the other. repair
// is only for a lease that a quorum has just confirmed and that is still held: an expired lease
// never becomes valid again. A repaired node counts from the next extension on, when it reports
// itself that it holds the lock. The fencing token is sent with the key, so the next grant there
// has a larger one.
//
// exchanged tells whether the extension requested the exchange of the lease's token. If the
// exchange began after the extension was sent, repair does nothing, and the next extension
// repairs. The reason: a node that recorded the former token for FORCE would accept the new one.
// Together with a node that has not recorded it yet, it would restore the lock after FORCE was
// answered.
//
// repair passes the calls to the lanes while it holds l.mu, and takes each lane's mutex inside
// it. So a later release follows the repairs on every lane.
func (l *Lease) repair(nodes quorum.Set, exchanged bool) {
	if nodes == 0 {
		return
	}
	q := l.keeper.q
	now := q.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.tokens()
	if l.errAtLocked(now) != nil || has.former != "" && !exchanged {
		return
	}
	if h := l.host(); h != nil {
		h.noteRepair(nodes)
	}
	c := node.Call{
		Op: "repair",
		Ops: l.targetNowLocked().repairOps(script.Operation{
			Token: has.current, Fence: l.lastReserved(),
			TTL: l.deadline - now + drift(l.ttl), // as on the other nodes
		}),
		NotAfter: min(now+q.options.NodeTimeout, l.deadline),
		Placed:   l.maybeOn,
	}
	for i, lane := range q.lanes {
		if nodes.Has(i) {
			q.counts.repairs.Add(1)
			lane.Do(c, now)
		}
	}
}

// targetNowLocked returns the lease's target, with the kind of a shared lock if the lease was downgraded.
// The caller holds mu.
func (l *Lease) targetNowLocked() *target {
	if !l.downgraded {
		return &l.target
	}
	t := l.target
	t.kind = script.KindShared
	return &t
}
