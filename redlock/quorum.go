package redlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/attempts"
	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Options configures a Quorum and its nodes.
type Options struct {
	// Nodes are the N independent Redis masters, 1 to 63. Every process that takes the same locks
	// must have the same nodes. An even number tolerates no more failures than the odd number
	// below it. While some are joining or leaving, processes may have the old list, both or the new
	// one: see Change.
	Nodes []Node

	// Host is the name of this process for the operator, while nodes are being changed; "": the name of
	// the host.
	Host string

	// Prefix stands before a lock's name in its key, usually DefaultPrefix. Nodes that were
	// admitted with another prefix are refused.
	Prefix string

	// NodeTimeout is how long a node may take to answer before its vote counts as failed. (A late
	// answer to the keeper's extension still counts if it arrives before the deadline. The keeper
	// retries in the meantime.) 0: 50 ms.
	NodeTimeout time.Duration

	// MaxTTL is the longest ttl that a request may have. 0: 30 s. A node that may have forgotten
	// votes is quarantined for the largest MaxTTL of all processes on the same nodes.
	MaxTTL time.Duration

	// NoQuarantine lets every node vote at once, even if it has forgotten votes. Two clients can
	// then hold one lock. It is for tests, and for nodes inside this process.
	NoQuarantine bool

	// Observe is called when a node's state changes. It must not block.
	Observe func(NodeStatus)

	// Notice is called when the operator must know something. It must not block.
	Notice func(Notice)

	// RoundTrip is called with the time that a node took to answer a group of calls. It
	// must not block.
	RoundTrip func(node string, took time.Duration)

	// Extended is called after the keeper extended a lease, with the validity that was left
	// before the extension, and the ttl. It must not block.
	Extended func(left, ttl time.Duration)

	// DeadlineChanged is called when the deadline or the ttl of one lease changed: after every
	// extension that counts, and before Lease.Extend returns. It is also called when a single
	// lease is older than it seemed. It must not block, unless the process is to do nothing more.
	// Calls can overtake each other. So lock first, then call Lease.Record, then write: then an
	// older record is never written after a newer one.
	DeadlineChanged func(l *Lease)

	// TokenChanges is called before the nodes get another token for a lease. After a pass
	// (Lease.HandOver) the nodes still have the token that names an earlier client. If the grant
	// lasts for half a second, the nodes exchange it for a token that names the grant's client.
	// The lease keeps its ID and its fencing token. To continue it, another process needs the
	// given Record instead of earlier ones. If TokenChanges returns false, the nodes keep the
	// token, and TokenChanges is called again half a second later. Like DeadlineChanged, it must
	// not block. Nil: the nodes exchange the token without a call.
	TokenChanges func(l *Lease, to Record) bool

	// DeadlinesMovedBack is called after the deadlines of all leases moved back at once, because
	// this host's clock had stopped (HostClockJumped). It is called before leases that have
	// expired as a result report LOST. Like DeadlineChanged, it must not block.
	DeadlinesMovedBack func()

	// Clock replaces BootTime, and Wall replaces time.Now. Only tests set them.
	Clock func() time.Duration
	Wall  func() time.Time

	hooks *hooks // of tests only
}

// MinTTL is the shortest ttl that a request may have. If it were shorter, the drift allowance and
// a round trip would use up the validity.
const MinTTL = 100 * time.Millisecond

// DefaultPrefix is redlockd's prefix unless its config sets another one.
const DefaultPrefix = admission.DefaultPrefix

// ChangeForAll says how to change the settings that all hosts must have in common: the node list
// and the prefix.
const ChangeForAll = admission.ChangeForAll

// MaxNodes is the largest number of nodes of a Quorum.
const MaxNodes = 63

// Quorum takes locks on a quorum of independent Redis masters (Redlock). It is
// safe for concurrent use.
type Quorum struct {
	*fleet
	clock  func() time.Duration
	hooks  *hooks
	keeper *keeper

	proposed  atomic.Uint64 // the last proposed fencing token
	slots     attempts.Slots
	contended contention
	limiter   *attempts.Limiter

	stops   []context.CancelFunc
	closing <-chan struct{} // closed when Close begins
	done    sync.WaitGroup
}

// New returns a Quorum that takes locks on the nodes. It does not wait for the nodes, and dials a
// node that is down until it is up. The caller must call Close at the end.
func New(o Options) (*Quorum, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	q := &Quorum{fleet: newFleet(&o), clock: o.Clock, hooks: o.hooks, limiter: attempts.NewLimiter(o.NodeTimeout)}
	q.keeper = newKeeper(q)
	q.onLeasesAged = q.keeper.age
	q.start()
	return q, nil
}

func (q *Quorum) start() {
	for _, l := range q.lanes {
		q.runUntilClose(l.Run)
		if l.Listens() {
			q.runUntilClose(l.Listen)
		}
	}
	q.closing = q.runUntilClose(q.keeper.run)
}

// runUntilClose starts run on a goroutine that Close ends. Close ends these goroutines one after the
// other, so that a simulation ends in the same way each time. If all of them shared one context,
// the order would be random. The returned channel is closed when run must end.
func (q *Quorum) runUntilClose(run func(context.Context)) <-chan struct{} {
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
	if o.hooks == nil {
		o.hooks = &noHooks
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname()
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
	return errors.Join(o.checkNames(), o.checkChange())
}

func (o *Options) checkNames() error {
	seen := map[string]bool{}
	for _, node := range o.Nodes {
		if seen[node.Name] {
			return fmt.Errorf("redlock: two nodes have the name %q: names must differ", node.Name)
		}
		seen[node.Name] = true
	}
	return nil
}

// checkChange checks that both lists of a change of the nodes have nodes.
func (o *Options) checkChange() error {
	var before, after int
	for _, node := range o.Nodes {
		switch {
		case node.Joining && node.Leaving:
			return fmt.Errorf("redlock: node %q is joining and leaving: only one of both", node.Name)
		case node.Joining:
			after++
		case node.Leaving:
			before++
		default:
			before, after = before+1, after+1
		}
	}
	if before == 0 || after == 0 {
		return errors.New("redlock: all nodes are joining, or all are leaving: both the old and the new list need a node")
	}
	return nil
}

// system returns which nodes are a quorum.
func (o *Options) system(refusing *quorum.Refusing) quorum.System {
	var before, after quorum.Set
	for i, node := range o.Nodes {
		if !node.Joining {
			before |= quorum.Of(i)
		}
		if !node.Leaving {
			after |= quorum.Of(i)
		}
	}
	if before == after {
		return quorum.Majority(len(o.Nodes))
	}
	return quorum.Changing(before, after, refusing)
}

// Settle waits until each node was reached or failed to be reached once, or until ctx is done.
// Before that, attempts fail because nodes are not dialled yet.
func (q *Quorum) Settle(ctx context.Context) {
	for _, l := range q.lanes {
		select {
		case <-l.Reached():
		case <-ctx.Done():
			return
		}
	}
}

// Admit ends the quarantine of a node at once, for all processes that use it. It is for brand-new
// nodes: the caller knows that the node has voted for no lock that can still be held. If that is
// wrong, two clients can hold one lock. Admit copies counters from the other nodes that may vote.
// It returns when the node may vote, within about 16 node timeouts. Its error matches
// ErrNotQuarantined, or it matches ErrNotAdmitted and states the reason.
func (q *Quorum) Admit(ctx context.Context, node string) error {
	for _, l := range q.lanes {
		if l.Name() == node {
			return l.AdmitNow(ctx)
		}
	}
	return fmt.Errorf("%w: there is no node %q", ErrRequest, node)
}

// Close ends all connections. It releases no lease: leases stay on the nodes until their
// deadlines. They are no longer extended, and no loss is reported. Close first sends releases
// that have begun. It returns when all goroutines have ended, within about eight node timeouts.
// An Acquire or a Scan that waits returns an error that matches ErrClosed.
func (q *Quorum) Close() {
	for _, stop := range q.stops {
		stop()
	}
	q.done.Wait()
	q.limiter.Close()
}

// fleet has the lanes of a Quorum, and what they share.
type fleet struct {
	options      *Options
	system       quorum.System
	lanes        []*node.Lane
	counts       counts
	admission    *admission.Fleet
	waiters      node.Waiters
	timers       sync.Pool // of stopped *time.Timer: each ballot needs one for a moment
	onLeasesAged func()    // called when all leases of this host are older than it assumed: see admission.Verdict
}

// newFleet makes the lanes. None of them runs yet.
func newFleet(o *Options) *fleet {
	f := &fleet{options: o}
	var refusing quorum.Refusing
	f.system = o.system(&refusing)
	f.admission = admission.NewFleet(o.admission(f.system, &refusing))
	f.waiters.Host = string(appendTokenID(nil))
	for i, master := range o.Nodes {
		f.lanes = append(f.lanes, node.NewLane(node.Options{
			Node: master, Index: i, Host: o.Host, Prefix: o.Prefix, NodeTimeout: o.NodeTimeout, NoQuarantine: o.NoQuarantine,
			Admission: f.admission, Fleet: f, Waiters: &f.waiters, Hooks: &o.hooks.Hooks,
			Clock: o.Clock, Observe: o.Observe, RoundTrip: o.RoundTrip,
		}))
	}
	return f
}

// admission returns the options of package admission, which decides which nodes may vote.
func (o *Options) admission(system quorum.System, refusing *quorum.Refusing) admission.Options {
	all := admission.Options{Prefix: o.Prefix, Quorum: system, Refusing: refusing, MaxTTL: o.MaxTTL, NoQuarantine: o.NoQuarantine}
	for _, node := range o.Nodes {
		all.Databases = all.Databases || node.Database != 0
		all.Nodes = append(all.Nodes, admission.NodeOptions{Name: node.Name, Durable: node.Durable, Joining: node.Joining, Leaving: node.Leaving})
	}
	return all
}

// newBallot returns a ballot of all nodes.
func (f *fleet) newBallot(op string, yes func(*Reply) bool) *ballot.Ballot {
	return ballot.New(op, len(f.lanes), f.system, yes)
}

// call passes the same script call to the lane of every node.
func (f *fleet) call(c node.Call, now time.Duration) {
	for _, l := range f.lanes {
		l.Do(c, now)
	}
}

// await waits until the ballot is decided, ctx is done, or the node timeout has passed.
func (f *fleet) await(ctx context.Context, b *ballot.Ballot) {
	timeout := f.options.NodeTimeout
	timer, _ := f.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(timeout)
	} else {
		timer.Reset(timeout)
	}
	b.Wait(ctx, timer.C, timeout, f.lanes)
	timer.Stop() // its channel is empty after that
	f.timers.Put(timer)
}

// CopyCounters asks the other nodes for their hashes and returns the maximum of each fencing counter.
// It ignores nodes that are excluded from voting, because they may have lost their counters as
// well. It also ignores a node with an implausible counter (admission.Fleet.CheckFence). It waits
// for at most the node timeout.
func (f *fleet) CopyCounters(ctx context.Context, to int) *admission.Sources {
	b := f.newBallot("counters", func(reply *Reply) bool { return len(reply.Array) > 0 })
	b.WaitsForAll = true
	call, now := node.Call{Op: b.Op, Ops: append(b.Ask(1), script.Operation{Op: script.ReadCounters, Key: script.NodeKey}), Voter: b}, f.options.Clock()
	for i, l := range f.lanes {
		if i == to {
			b.Vote(i, nil, &NodeError{Node: l.Name(), Op: b.Op, Failure: FailedQuarantined, Err: errCopies})
			continue
		}
		l.Do(call, now)
	}
	f.await(ctx, b)
	sources := &admission.Sources{Nodes: b.Granted, Counters: new(admission.Counters), Epochs: make([]string, len(f.lanes))}
	for i := range b.Answers {
		if b.Answers[i].Verdict == ballot.Granted {
			sources.Epochs[i] = readHash(sources.Counters, b.Answers[i].Shown.Array)
		}
	}
	return sources
}

// noNode asks CopyCounters to ask all nodes.
const noNode = -1

var errCopies = errors.New("it copies the counters of the others")

// readHash raises each counter to the value in a node's hash, if that is larger. It returns the epoch.
func readHash(counters *admission.Counters, fields []Reply) (epoch string) {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Str == script.EpochField {
			epoch = fields[i+1].Str
		}
		index, ok := script.CounterIndex(fields[i].Str)
		if !ok {
			continue
		}
		if value, ok := script.ParseFence(fields[i+1].Str); ok {
			counters[index] = max(counters[index], value)
		}
	}
	return epoch
}

// Judged passes the results of a verdict on to the other nodes, the operator and the leases.
func (f *fleet) Judged(node string, v *admission.Verdict) {
	f.LookAt(v.LookAt)
	if v.QuarantineBegun {
		f.counts.quarantines.Add(1)
	}
	for _, n := range v.Notices {
		f.notice(node, n)
	}
	if v.HostMissed {
		f.onLeasesAged()
	}
}

// notice counts a notice and reports it.
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

// LookAt makes the lanes of the given nodes look at them now.
func (f *fleet) LookAt(nodes []int) {
	for _, i := range nodes {
		f.lanes[i].LookSoon()
	}
}

// freshness returns how recent the facts about the nodes are on which a ballot relies.
func (f *fleet) freshness(now time.Duration) admission.Freshness {
	fresh, lookAt := f.admission.Freshness(now)
	f.LookAt(lookAt)
	return fresh
}
