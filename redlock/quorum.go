package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// Options say over which nodes a Quorum locks, and how.
type Options struct {
	// Nodes are the N independent Redis masters, the same ones in every process
	// that locks the same things. 1 to 63; an odd number bears the most failures
	// for its size.
	Nodes []Node

	// Prefix stands before a lock's name in its key, DefaultPrefix usually. Nodes that were
	// admitted with another one are refused.
	Prefix string

	// NodeTimeout is how long a node may take to answer before its vote counts
	// as failed (but for extensions by the keeper: what is answered later, and before
	// the deadline, counts while it is tried again). 0: 50 ms.
	NodeTimeout time.Duration

	// MaxTTL is the longest ttl that may be asked for. 0: 30 s. The largest that
	// any process uses on the same nodes is how long a node is quarantined that
	// may have forgotten votes.
	MaxTTL time.Duration

	// NoQuarantine lets every node vote at once, whatever it forgot: two holders
	// are possible then. For nodes that live in this process, and for tests.
	NoQuarantine bool

	// Observe is told of every change of a node's state. It must not block.
	Observe func(NodeStatus)

	// Notice is told of what whoever runs the nodes must know. It must not block.
	Notice func(Notice)

	// RoundTrip is told how long a node took to answer a group of calls. It must
	// not block.
	RoundTrip func(node string, took time.Duration)

	// Extended is told what validity a lease had left, of its ttl, when it had been
	// extended because it was due. It must not block.
	Extended func(left, ttl time.Duration)

	// Moved is told of a lease whose deadline has just become another one, or its ttl:
	// after every extension that counts, whoever asked for it, before Lease.Extend
	// returns; and where one alone is older than it seemed. It must not block, unless
	// the process is to do nothing more. Extensions can overtake each other: what is
	// written down must be what Lease.Record says when nobody else can write.
	Moved func(l *Lease)

	// Aged is told when the deadlines of all leases have been moved back at once,
	// because this host's clock had stood still (HostClockJumped), and before those
	// that are over by that say LOST. It must not block, unless as Moved.
	Aged func()

	// Clock replaces BootTime, and Wall time.Now, in tests.
	Clock func() time.Duration
	Wall  func() time.Time

	rules *rules // replaced by tests alone
}

// MinTTL is the shortest ttl that may be asked for: below it the drift
// allowance and a round trip would eat the validity up.
const MinTTL = 100 * time.Millisecond

// DefaultPrefix is that of redlockd, where its config does not say another.
const DefaultPrefix = admission.DefaultPrefix

// ChangeForAll says how to change what all hosts must have in common: the node list, the
// prefix.
const ChangeForAll = admission.ChangeForAll

// MaxNodes is how many nodes a Quorum can have.
const MaxNodes = 63

// Quorum takes locks on a quorum of independent Redis masters (Redlock). It is
// safe for concurrent use.
type Quorum struct {
	*fleet
	clock  func() time.Duration
	rules  *rules
	keeper *keeper

	proposed atomic.Uint64 // the last fencing token that was proposed
	places   places
	limiter  attemptLimiter
	listing  chan struct{} // of capacity 1: one is told of all of many
	listers  atomic.Int32  // who wait for that, and he
	listed   listed        // what he was told last, and others may be; his who has the place

	stops   []context.CancelFunc
	closing <-chan struct{} // closed when Close begins
	done    sync.WaitGroup
}

// New starts to lock over the nodes. It does not wait for them: a node that is
// down is dialled until it is there. Close must be called at the end.
func New(o Options) (*Quorum, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	q := &Quorum{fleet: newFleet(&o), clock: o.Clock, rules: o.rules, limiter: newAttemptLimiter(o.NodeTimeout), listing: make(chan struct{}, 1)}
	q.keeper = newKeeper(q)
	q.aged = q.keeper.age
	q.start()
	return q, nil
}

func (q *Quorum) start() {
	for _, l := range q.lanes {
		q.until(l.Run)
		if l.Listens() {
			q.until(l.Hear)
		}
	}
	q.closing = q.until(q.keeper.run)
}

// until has run go on until Close, which ends those that were begun one after the other,
// so that a simulation ends in the same way each time: one context for all of them would
// end the contexts that they made of it in any order. The channel is closed then.
func (q *Quorum) until(run func(context.Context)) <-chan struct{} {
	ctx, stop := context.WithCancel(context.Background())
	q.stops = append(q.stops, stop)
	q.done.Go(func() { run(ctx) })
	return ctx.Done()
}

func (o *Options) complete() error {
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 50 * time.Millisecond
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = BootTime
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.rules == nil {
		o.rules = &soundRules
	}
	switch {
	case len(o.Nodes) == 0:
		return errors.New("redlock: no nodes: at least one Redis master is needed")
	case len(o.Nodes) > MaxNodes:
		return fmt.Errorf("redlock: %d nodes: at most %d", len(o.Nodes), MaxNodes)
	case o.NodeTimeout < 0:
		return fmt.Errorf("redlock: node timeout %v: must be more than 0", o.NodeTimeout)
	case o.MaxTTL < MinTTL || o.MaxTTL > admission.LongestMaxTTL:
		return fmt.Errorf("redlock: max ttl %v: between %v and %v", o.MaxTTL, MinTTL, admission.LongestMaxTTL)
	}
	return o.checkNames()
}

func (o *Options) checkNames() error {
	seen := map[string]bool{}
	for _, node := range o.Nodes {
		if seen[node.Name] {
			return fmt.Errorf("redlock: two nodes are called %q: errors could not tell them apart", node.Name)
		}
		seen[node.Name] = true
	}
	return nil
}

// Settle waits until each node has been reached or could not be reached once,
// or until ctx is done. Before that, attempts fail on nodes that only have not
// been dialled yet.
func (q *Quorum) Settle(ctx context.Context) {
	for _, l := range q.lanes {
		select {
		case <-l.Reached():
		case <-ctx.Done():
			return
		}
	}
}

// Close ends all connections. It releases nothing: leases stay on the nodes
// until their deadlines, are extended no more, and no loss is told. Releases
// that were under way are sent first; it returns when all goroutines have
// ended, within about eight node timeouts. Acquires that wait return an error that
// matches ErrClosed.
func (q *Quorum) Close() {
	for _, stop := range q.stops {
		stop()
	}
	q.done.Wait()
	q.limiter.close()
}
