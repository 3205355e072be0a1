package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Options say over which nodes a Quorum locks, and how.
type Options struct {
	// Nodes are the N independent Redis masters, the same ones in every process that locks
	// the same things. 1 to 63; an odd number tolerates the most failures for its size.
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

	// Observe is called with every change of a node's state. It must not block.
	Observe func(NodeStatus)

	// Notice is called with what the operator must know. It must not block.
	Notice func(Notice)

	// RoundTrip is called with the time that a node took to answer a group of calls. It
	// must not block.
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

// DefaultPrefix is redlockd's prefix unless its config sets another.
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

	proposed    atomic.Uint64 // the last fencing token that was proposed
	slots       slotReservations
	limiter     attemptLimiter
	listTurn    chan struct{} // of capacity 1: one is told of all of many
	listWaiters atomic.Int32  // who wait for that, and he
	lastList    listResult    // what he was told last, and others may be; his who has the place

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
	q := &Quorum{fleet: newFleet(&o), clock: o.Clock, rules: o.rules, limiter: newAttemptLimiter(o.NodeTimeout), listTurn: make(chan struct{}, 1)}
	q.keeper = newKeeper(q)
	q.aged = q.keeper.age
	q.start()
	return q, nil
}

func (q *Quorum) start() {
	for _, l := range q.lanes {
		q.until(l.Run)
		if l.Listens() {
			q.until(l.Listen)
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

// listResult is the last result of list, and of which lock.
type listResult struct {
	name  string
	began time.Duration // BootTime before the nodes were asked
	b     *ballot.Ballot
}

// fleet is the lanes of a Quorum, and what they share.
type fleet struct {
	options   *Options
	quorum    int
	lanes     []*node.Lane
	counts    counts
	admission *admission.Fleet
	waiters   node.Waiters
	timers    sync.Pool // of *time.Timer, stopped: each ballot needs one, for a moment
	aged      func()    // all leases of this host are older than it knew: see admission.Verdict
}

// newFleet makes the lanes; none of them runs yet.
func newFleet(o *Options) *fleet {
	f := &fleet{options: o, quorum: o.rules.quorum(len(o.Nodes))}
	f.admission = admission.NewFleet(o.admission(f.quorum))
	for i, master := range o.Nodes {
		f.lanes = append(f.lanes, node.NewLane(node.Options{
			Node: master, Index: i, Prefix: o.Prefix, NodeTimeout: o.NodeTimeout, NoQuarantine: o.NoQuarantine,
			Admission: f.admission, Fleet: f, Waiters: &f.waiters, Rules: &o.rules.Rules,
			Clock: o.Clock, Observe: o.Observe, RoundTrip: o.RoundTrip,
		}))
	}
	return f
}

// admission returns what decides which nodes may vote.
func (o *Options) admission(quorum int) admission.Options {
	all := admission.Options{Prefix: o.Prefix, Quorum: quorum, MaxTTL: o.MaxTTL, NoQuarantine: o.NoQuarantine, Rules: o.rules.admission}
	for _, node := range o.Nodes {
		all.Nodes = append(all.Nodes, admission.NodeOptions{Name: node.Name, Durable: node.Durable})
	}
	return all
}

// newBallot is a ballot of all the nodes.
func (f *fleet) newBallot(op string, yes func(*Reply) bool) *ballot.Ballot {
	return ballot.New(op, len(f.lanes), f.quorum, yes)
}

// call hands the same script call over to every node.
func (f *fleet) call(c node.Call, now time.Duration) {
	for _, l := range f.lanes {
		l.Do(c, now)
	}
}

// await waits until the ballot is decided, for the node timeout at most, or until ctx
// is done.
func (f *fleet) await(ctx context.Context, b *ballot.Ballot) {
	timeout := f.options.NodeTimeout
	timer, _ := f.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(timeout)
	} else {
		timer.Reset(timeout)
	}
	b.Wait(ctx, timer.C, timeout, f.lanes)
	timer.Stop() // nothing is in its channel after that
	f.timers.Put(timer)
}

// CopyCounters asks the other nodes for their fencing counters and returns the largest of
// each. It does not count nodes that have no vote themselves: their counters may be lost,
// too. Nor one with a counter that is not believed (admission.Fleet.CheckToken). It waits
// for them at most for the node timeout.
func (f *fleet) CopyCounters(ctx context.Context) (counters *admission.Counters, sources int) {
	counters = new(admission.Counters)
	b := f.newBallot("counters", func(reply *Reply) bool { return len(reply.Array) > 0 })
	b.All = true
	f.call(node.Call{Op: b.Op, Ops: append(b.Ask(1), script.Operation{Op: script.ReadCounters, Key: script.NodeKey}), Voter: b}, f.options.Clock())
	f.await(ctx, b)
	for i := range b.Answers {
		if b.Answers[i].Verdict == ballot.Granted {
			sources++
			raiseCounters(counters, b.Answers[i].Shown.Array)
		}
	}
	return counters, sources
}

// raiseCounters takes the larger values out of a node's hash.
func raiseCounters(counters *admission.Counters, fields []Reply) {
	for i := 0; i+1 < len(fields); i += 2 {
		index, ok := script.CounterIndex(fields[i].Str)
		if !ok {
			continue
		}
		if value, ok := script.ParseFence(fields[i+1].Str); ok {
			counters[index] = max(counters[index], value)
		}
	}
}

// Judged does what follows from a verdict for other nodes, the operator and the leases.
func (f *fleet) Judged(node string, v *admission.Verdict) {
	f.LookAt(v.LookAt)
	if v.QuarantineBegun {
		f.counts.quarantines.Add(1)
	}
	for _, n := range v.Notices {
		f.notice(node, n)
	}
	if v.HostMissed {
		f.aged()
	}
}

// notice counts a notice and passes it on.
func (f *fleet) notice(node string, n admission.Notice) {
	switch n.Kind {
	case admission.ClockJumped:
		f.counts.clockJumps.Add(1)
		f.counts.withdrawals.Add(1)
	case admission.Withdrawn:
		f.counts.withdrawals.Add(1)
	case admission.HostClockJumped:
		f.counts.clockJumps.Add(1)
		node = ""
	case admission.FleetIsNew:
		node = ""
	case admission.CountersLost:
		f.counts.counterLosses.Add(1)
		node = ""
	}
	if f.options.Notice != nil {
		f.options.Notice(Notice{Kind: NoticeKind(n.Kind), Node: node, Text: n.Text})
	}
}

// LookAt has some nodes looked at now.
func (f *fleet) LookAt(nodes []int) {
	for _, i := range nodes {
		f.lanes[i].LookSoon()
	}
}

// freshness returns how recent the knowledge of the nodes is that a ballot relies on.
func (f *fleet) freshness(now time.Duration) admission.Freshness {
	fresh, lookAt := f.admission.Freshness(now)
	f.LookAt(lookAt)
	return fresh
}
