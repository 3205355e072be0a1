package redlock

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// extension is a ballot on many leases at once: one call a node, and for each
// lease its own count. A lease is decided at its own deciding answer.
type extension struct {
	k         *keeper
	start     time.Duration       // before the first byte
	missed    time.Duration       // what this host's clock had missed by then
	freshness admission.Freshness // what was known by then of what the nodes say of each other
	leases    []*Lease
	ttls      []time.Duration
	done      chan struct{} // closed when nothing is open any more

	changes bool   // ttls become the leases' own
	decided func() // called when nothing is open any more, and the nodes are done with it; may be nil

	mu       sync.Mutex // guards what follows; not held while a lease is told
	granted  []uint8    // by lease
	refused  []uint8
	missing  []uint64 // by lease: nodes where it was not held, as bits
	told     uint64   // leases, as bits, that know that they are confirmed
	forced   []bool   // by lease: a node said that it was forced away
	answered uint64   // nodes, as bits
	voters   uint64   // those of them that said which leases they hold
	failures []*NodeError
	refusal  *NodeError // one of those that concern one lease alone
	open     int        // leases that are not decided
	gaveUp   bool       // on nodes that did not answer in time
	over     bool       // decided was called, or is about to be
	timer    *time.Timer
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
		granted:   make([]uint8, n),
		refused:   make([]uint8, n),
		missing:   make([]uint64, n),
		forced:    make([]bool, n),
		open:      n,
	}
	for i, l := range leases {
		e.ttls[i] = l.TTL()
	}
	return e
}

// ask hands the calls over and arms the bound on their answers.
func (e *extension) ask() {
	ops := make([]script.Operation, 0, len(e.leases))
	for i, l := range e.leases {
		ops = l.each(ops, script.Operation{Op: script.Extend, Token: l.token, TTL: e.ttls[i]})
	}
	e.mu.Lock()
	e.timer = time.AfterFunc(e.k.q.options.NodeTimeout, e.giveUp)
	e.mu.Unlock()
	// The keeper bounds what it asks for at once. (What clients ask for is not, and is
	// not needed: what is to be kept is kept without.)
	e.k.q.call(node.Call{Op: "extend", Ops: ops, Several: len(e.leases) > 1, Urgent: e.decided != nil, Voter: e}, e.start)
}

// Vote counts one node's answers, and tells the leases that they decide.
func (e *extension) Vote(node int, replies []Reply, failure *NodeError) {
	o := e.count(node, replies, failure)
	e.tell(o)
	for _, i := range o.repair {
		e.leases[i].repair(1 << node)
	}
}

// outcomes are the leases that one answer decided, by index.
type outcomes struct {
	confirmed, gone, undecided []int
	repair                     []int // confirmed before, and not held by the node that answered
	last                       bool  // nothing is open after these
	over                       bool  // and the nodes are done
}

func (e *extension) count(node int, replies []Reply, failure *NodeError) (o outcomes) {
	if failure == nil {
		replies = e.byLease(replies)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answered |= 1 << node
	if failure == nil {
		e.voters |= 1 << node
	}
	if e.open == 0 {
		return e.countLate(node, replies)
	}
	if failure != nil {
		e.failures = append(e.failures, failure)
	} else {
		o = e.countReplies(node, replies)
	}
	if nodes := len(e.k.q.lanes); bits.OnesCount64(e.answered) == nodes || len(e.failures) > nodes-e.k.q.quorum {
		o.undecided = e.close()
	}
	if o.last = e.open == 0; o.last {
		e.timer.Stop()
	}
	o.over = e.isOver()
	return o
}

// isOver is true once: when nothing is open and so many nodes are done with it that it
// keeps them from nothing else. (A node that is given up on answers later, or its
// connection breaks: asked for more meanwhile, it would be slower still.) The caller
// holds mu.
func (e *extension) isOver() bool {
	if e.over || e.open > 0 || e.gaveUp && bits.OnesCount64(e.answered) < e.k.q.quorum {
		return false
	}
	e.over = true
	return true
}

// byLease is one reply for each lease: of those of several keys, the worst.
func (e *extension) byLease(replies []Reply) []Reply {
	if len(replies) == len(e.leases) {
		return replies
	}
	one := make([]Reply, len(e.leases))
	for i, l := range e.leases {
		one[i] = slices.MinFunc(replies[:l.width()], worse)
		replies = replies[l.width():]
	}
	return one
}

// worse orders the answers to an extension: no vote, forced away, not held, held.
func worse(a, b Reply) int {
	if (a.Err == nil) != (b.Err == nil) {
		return cmp.Compare(noVote(a), noVote(b))
	}
	return cmp.Compare(a.Int, b.Int)
}

func noVote(r Reply) int {
	if r.Err != nil {
		return 0
	}
	return 1
}

// countReplies needs mu.
func (e *extension) countReplies(node int, replies []Reply) (o outcomes) {
	quorum := e.k.q.quorum
	spare := len(e.k.q.lanes) - quorum
	o.repair = e.toRepair(node, replies)
	for i := range replies {
		switch {
		case e.isDecided(i):
		case replies[i].Err != nil: // no vote, neither way
			e.refusal = e.failure(node, FailedError, replies[i].Err)
		case e.k.rules.countsForExtension(e.noteHeld(i, node, &replies[i])):
			if e.granted[i]++; int(e.granted[i]) == quorum {
				o.confirmed = append(o.confirmed, i)
				e.open--
			}
		default:
			if e.refused[i]++; int(e.refused[i]) > spare {
				o.gone = append(o.gone, i)
				e.open--
			}
		}
	}
	return o
}

// countLate counts an answer that comes when the ballot is over. What the keeper had
// given up may be confirmed by it nevertheless, while it is tried again: a node that is
// slower than the node timeout would have all that it is asked tried again and again,
// and lost. It is as good as one in time, as long as the old deadline is not past. The
// caller holds mu.
func (e *extension) countLate(node int, replies []Reply) (o outcomes) {
	o.repair, o.over = e.toRepair(node, replies), e.isOver()
	for i := range replies {
		if e.changes || e.isDecided(i) || replies[i].Err != nil || !e.k.rules.countsForExtension(e.noteHeld(i, node, &replies[i])) {
			continue
		}
		if e.granted[i]++; int(e.granted[i]) == e.k.q.quorum {
			o.confirmed = append(o.confirmed, i)
		}
	}
	return o
}

// noteHeld tells whether a node held a lease, and notes where it did not: missing is
// where it can be set again, which the node refuses where it was forced away. The
// caller holds mu.
func (e *extension) noteHeld(lease, node int, reply *Reply) bool {
	switch {
	case reply.Int == 1:
		return true
	case reply.Int < 0:
		e.forced[lease] = true
	default:
		e.missing[lease] |= 1 << node
	}
	return false
}

// toRepair are the leases that a quorum confirmed already and that the node which
// answers now does not hold. One that does not know its new deadline yet is repaired
// there when it does: it would last on that node until the old one. The caller holds
// mu.
func (e *extension) toRepair(node int, replies []Reply) (repair []int) {
	for i := range replies {
		switch {
		case replies[i].Err != nil || replies[i].Int != 0 || int(e.granted[i]) < e.k.q.quorum:
		case e.told&(1<<i) == 0:
			e.missing[i] |= 1 << node
		default:
			repair = append(repair, i)
		}
	}
	return repair
}

// missingOf is on which nodes a lease is missing that knows now that it is confirmed.
func (e *extension) missingOf(i int) (nodes uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told |= 1 << i
	return e.missing[i]
}

// isDecided needs mu.
func (e *extension) isDecided(i int) bool {
	quorum := e.k.q.quorum
	return int(e.granted[i]) >= quorum || int(e.refused[i]) > len(e.k.q.lanes)-quorum
}

// close gives up what is open. The caller holds mu.
func (e *extension) close() (undecided []int) {
	for i := range e.leases {
		if !e.isDecided(i) {
			undecided = append(undecided, i)
		}
	}
	e.open = 0
	return undecided
}

// giveUp ends the ballot when the nodes had their time.
func (e *extension) giveUp() {
	e.mu.Lock()
	o := outcomes{last: e.open > 0}
	if o.last {
		e.gaveUp = true
		o.undecided, o.over = e.close(), e.isOver()
		e.noteSilent()
	}
	e.mu.Unlock()
	e.tell(o)
}

// noteSilent counts as failed the nodes that have not answered. The caller
// holds mu.
func (e *extension) noteSilent() {
	for i := range e.k.q.lanes {
		if e.answered&(1<<i) == 0 {
			e.failures = append(e.failures, e.failure(i, FailedTimeout, node.Silence(e.k.q.options.NodeTimeout)))
		}
	}
}

func (e *extension) failure(node int, kind Failure, err error) *NodeError {
	return &NodeError{Node: e.k.q.lanes[node].Name(), Op: "extend", Failure: kind, Err: err}
}

// cause is why leases stayed undecided. The caller holds no lock.
func (e *extension) cause(i int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	failures := e.failures
	if len(failures) == 0 && e.refusal != nil {
		failures = []*NodeError{e.refusal}
	}
	return &NoQuorumError{
		Name:    e.leases[i].name(),
		Granted: int(e.granted[i]),
		Needed:  e.k.q.quorum,
		Failed:  failures,
		Retry:   e.k.q.options.NodeTimeout,
	}
}

func (e *extension) tell(o outcomes) {
	if len(o.confirmed) > 0 {
		e.tellConfirmed(o.confirmed)
	}
	for _, i := range o.gone {
		e.leases[i].lose(e.whyGone(i)) // no quorum can hold it
	}
	for _, i := range o.undecided {
		e.k.retry(e.leases[i], e.ttls[i], e.cause(i))
	}
	if o.last {
		close(e.done)
	}
	if o.over && e.decided != nil {
		e.decided()
	}
}

func (e *extension) tellConfirmed(confirmed []int) {
	latest := e.latest()
	for _, i := range confirmed {
		e.k.confirmed(e.leases[i], e.start, e.missed, latest, e.ttls[i], e.changes)
		e.leases[i].repair(e.missingOf(i))
	}
}

// latest is the deadline that the leases may have: see admission.Fleet.LatestDeadline.
func (e *extension) latest() time.Duration {
	e.mu.Lock()
	voters := e.voters
	e.mu.Unlock()
	return e.k.q.admission.LatestDeadline(e.freshness, voters)
}

func (e *extension) whyGone(i int) LostReason {
	if e.forced[i] { // nothing is added to it once decided
		return LostForced
	}
	return LostQuorum
}

// Extend extends the lease now, by ttl from now on (0: by the ttl it has), and
// waits for a quorum at most for the node timeout or until ctx is done. A
// shorter ttl holds from then on, but no deadline is ever moved back. The error
// matches ErrNoQuorum (the lease is as valid as before), ErrLost, ErrReleased
// or ErrRequest.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	k := l.keeper
	if ttl == 0 {
		ttl = l.TTL()
	}
	if ttl < MinTTL || ttl > k.q.options.MaxTTL {
		return fmt.Errorf("%s: %w: ttl %v: must be between %v and %v", l.name(), ErrRequest, ttl, MinTTL, k.q.options.MaxTTL)
	}
	ttl = ttl.Truncate(time.Millisecond) // what the nodes are told
	if l.guard > ttl/maxGuardShare {
		return fmt.Errorf("%s: %w: ttl %v: its guard of %v needs at least twice that", l.name(), ErrRequest, ttl, l.guard)
	}
	if err := l.Err(); err != nil {
		return err
	}
	now := k.clock()
	e := newExtension(k, []*Lease{l}, now)
	e.ttls[0], e.changes = l.bounded(ttl, now).Truncate(time.Millisecond), true
	e.ask()
	select {
	case <-e.done:
		return e.result(l)
	case <-ctx.Done():
	}
	select {
	case <-e.done: // at the same time: what came of it is known
		return e.result(l)
	default:
		return fmt.Errorf("%s: extend: %w", l.name(), context.Cause(ctx))
	}
}

// bounded is a ttl that is longer than the one it has by no more than Request.Max
// leaves: a guard that is a share of more could be all that is left.
func (l *Lease) bounded(ttl, now time.Duration) time.Duration {
	if l.end == 0 {
		return ttl
	}
	return min(ttl, max(l.end-now, l.TTL()))
}

func (e *extension) isGranted(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(e.granted[i]) >= e.k.q.quorum
}

// result is what an extension of one lease came to.
func (e *extension) result(l *Lease) error {
	if err := l.Err(); err != nil {
		return err
	}
	if e.isGranted(0) {
		return nil
	}
	return e.cause(0)
}

// repair sets the key of a lease again on nodes (bits) that do not hold it,
// where nobody else has it, so that a lease outlives the loss of nodes one after
// the other. It is for leases that a quorum has just confirmed, and only as long
// as they are held: a lapsed lease never comes back. A node that was repaired
// counts from the next extension on, when it says itself that it holds the lock.
// The fencing token goes with the key: the next grant there is larger.
//
// The repairs are handed over under mu, and under each lane's within that: a release
// comes after, and travels behind them on every lane.
func (l *Lease) repair(nodes uint64) {
	if nodes == 0 {
		return
	}
	q := l.keeper.q
	now := q.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errAt(now) != nil {
		return
	}
	c := node.Call{
		Op: "repair",
		Ops: l.repairing(script.Operation{
			Token: l.token, Fence: l.fence,
			TTL: l.deadline - now + drift(l.ttl), // as on the other nodes
		}),
		NotAfter: min(now+q.options.NodeTimeout, l.deadline),
		Placed:   l.maybeOn,
	}
	for ; nodes != 0; nodes &= nodes - 1 {
		q.counts.repairs.Add(1)
		q.lanes[bits.TrailingZeros64(nodes)].Do(c, now)
	}
}
