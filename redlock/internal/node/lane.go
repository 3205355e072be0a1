package node

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// lane is one node's ordered line of work: one goroutine and one connection.
// It takes everything that waits and sends it as one group, like a database's
// group commit; that is where the throughput comes from. It is also what keeps
// a release behind its acquire: commands travel in the order in which they
// were handed over, on one connection, and where a connection ends the order
// is restored (see connect).
type Lane struct {
	node         redis.Node
	index        int
	prefix       string // of the keys of locks
	noQuarantine bool
	fleet        FleetOfLane
	admission    *admission.Fleet
	waiters      *Bells
	timing       timing
	clock        func() time.Duration
	rules        *LaneRules
	observe      func(NodeStatus)
	timed        func(node string, took time.Duration)
	wake         chan struct{}        // of capacity 1: something was handed over
	tracking     atomic.Bool          // it tells when a lock is given back that was listened to
	hearer       atomic.Int64         // id of the connection on which it is to tell; 0: none
	lookNow      atomic.Bool          // the node is to be looked at when the lane wakes
	admits       chan chan<- struct{} // somebody ends the quarantine, and is told when that was tried
	settled      chan struct{}        // closed when the first attempt to connect has ended
	rounds       atomic.Uint64        // how often the loop came round

	mu      sync.Mutex // guards what follows; never held across I/O or a vote
	state   NodeState
	reason  error                  // why state is not NodeReady
	until   time.Duration          // of a quarantine: BootTime when it is over
	warning []string               // what its INFO says that could be better
	queue   []Call                 // handed over, not sent
	urgent  []Call                 // the same, and to be sent before those
	sentAt  time.Duration          // when the group under way was sent; 0: none is
	owed    map[string]owedRelease // by token: what this node must still hear
	rtt     time.Duration
	trouble error // what it answered with an error lately, though it is ready
	denied  error // why it refuses all that locks need, though it is ready
	mute    error // why it does not tell when locks are given back

	// What follows belongs to the lane's goroutine.
	spare    []Call // swapped with queue
	spans    []span // which calls went into which command
	armed    []*Arming
	commands []redis.Command
	replies  []redis.Reply
	sent     time.Duration // BootTime before the last round trip
	heard    time.Duration // and after it
	lookTurn uint64        // the turn in which the node was last looked at
	rights   bool          // it was asked then what its ACL lacks
	within   bound         // the context of the round trip under way
	encoder  script.Encoder
	session  laneSession
	member   *admission.Member // decides whether the node may vote
	owedSeen time.Duration     // when expired releases were last dropped
	deniedAt string            // the key of a call that it refused: see denied
	mutedAt  string            // a key that it did not let us listen to: see mute
}

// laneSession is what the lane knows of its node over the present connection.
type laneSession struct {
	clientID int64 // CLIENT ID of the last connection, to kill it by
	runID    string
	epoch    string        // the incarnation that was verified over this connection; "": it has no vote
	offset   time.Duration // the node's TIME (since 1970) minus our BootTime
	look     bool          // whether it may vote is to be found out again
	rights   bool          // and what its ACL lacks
	scripts  bool          // SCRIPT LOAD is needed again
	owed     bool          // owed releases are to be sent again
	probe    bool          // whether it is still denied what locks need is to be found out
	hearer   int64         // where the node was told to tell what has changed; 0: nowhere
	refused  bool          // it has answered with an error since the last heartbeat
	doubt    bool          // it was silent: whether it answers scripts is to be found out before it is ready
}

// timing are the bounds that follow from node_timeout.
type timing struct {
	answer    time.Duration // node_timeout: an answer counts until then
	silence   time.Duration // a connection that is silent for so long is replaced
	handshake time.Duration // dial, log in, load the scripts
	backoff   time.Duration // the longest pause between two attempts to connect
}

func newTiming(nodeTimeout time.Duration) timing {
	return timing{
		answer:    nodeTimeout,
		silence:   max(8*nodeTimeout, 400*time.Millisecond),
		handshake: max(4*nodeTimeout, 250*time.Millisecond),
		backoff:   250 * time.Millisecond,
	}
}

// silenceLimit is for how long a connection may be silent before it is replaced: what was
// sent over it may be executed until then.
func SilenceLimit(nodeTimeout time.Duration) time.Duration { return newTiming(nodeTimeout).silence }

const (
	heartbeat    = admission.LookInterval // TIME, INFO and epoch are read so often: whether it may vote, its clock, a sign of life
	maxQueue     = 4096                   // calls that wait for one node; releases and what is urgent come on top
	maxUrgent    = 64                     // urgent calls that do
	firstBackoff = 10 * time.Millisecond
	owedGroup    = 512         // owed releases sent at once
	owedSweep    = time.Second // how often those are dropped that are owed no more
)

// call is what one node is asked on behalf of one ballot: an operation for each
// of its keys; of many leases where they are extended together.
type Call struct {
	Op      string // for errors: "acquire"
	Ops     []script.Operation
	Several bool // for several leases
	// urgent: what is held already goes before what is wanted. It is not refused for
	// what others have the node do, and waits for one group of theirs at most.
	Urgent bool

	// notAfter, of an acquire and a repair: the BootTime after which it must not
	// be sent and the node must not act on it. 0: no such bound.
	NotAfter time.Duration
	// until, of a release: it is repeated until the node answered or BootTime is
	// past until, when the key has expired anyway.
	Until time.Duration
	// placed, of an acquire, a repair, a mark and a release: where the token may be.
	Placed *NodeSet
	// gives, of a hand-over, is the release that it is at once: what is left to do
	// where it was not done.
	Gives  *Call
	Arming *Arming // what the node is to tell of from now on; nil: nothing
	Voter  Voter   // gets the answer; nil: nobody asks
}

// isRelease tells what gives back, a lock or a mark, which every node is sent and none
// may drop, from what wants a vote.
func (c *Call) IsRelease() bool { return c.Ops[0].Op.Releases() }

// goesTo: a node will be sent it.
func (c *Call) goesTo(node int) {
	if c.Placed != nil && !c.IsRelease() {
		c.Placed.Add(node)
	}
	if c.Arming != nil {
		c.Arming.waiter.Marked.Add(node)
	}
}

// neverSent: what would have taken the lock is not on the node. (A repair may be of one
// key of several: the others are there.)
func (c *Call) neverSent(node int) {
	if c.Placed != nil && c.Ops[0].Op.Takes() {
		c.Placed.remove(node)
	}
}

// voter gets a node's answer to a call: a reply for each of its operations, or
// what went wrong. vote is called once a node, on any goroutine, must not block
// and must not keep replies.
type Voter interface {
	Vote(node int, replies []redis.Reply, failure *NodeError)
}

// nodeSet is a set of nodes by index.
type NodeSet struct{ bits atomic.Uint64 }

func (s *NodeSet) Has(node int) bool { return s.bits.Load()&(1<<node) != 0 }
func (s *NodeSet) count() int        { return bits.OnesCount64(s.bits.Load()) }
func (s *NodeSet) Add(node int)      { s.bits.Or(1 << node) }
func (s *NodeSet) remove(node int)   { s.bits.And(^(uint64(1) << node)) }

type owedRelease struct {
	ops   []script.Operation
	until time.Duration
}

// laneOptions say which node a lane is for, and what it works with.
type LaneOptions struct {
	Node         redis.Node
	Index        int    // of the node
	Prefix       string // of the keys of locks
	NodeTimeout  time.Duration
	NoQuarantine bool
	Admission    *admission.Fleet
	Fleet        FleetOfLane
	Waiters      *Bells
	Rules        *LaneRules
	Clock        func() time.Duration // BootTime
	Observe      func(NodeStatus)     // may be nil
	RoundTrip    func(node string, took time.Duration)
}

// fleetOfLane is what a lane needs of the other nodes.
type FleetOfLane interface {
	// LookAt has some nodes looked at now.
	LookAt(nodes []int)
	// Judged does what follows from a verdict for other nodes, the operator and leases.
	Judged(node string, v *admission.Verdict)
	// CopyCounters returns the largest of each fencing counter of the nodes that may
	// vote, and how many nodes these are.
	CopyCounters(ctx context.Context) (counters *admission.Counters, sources int)
}

// newLane makes a lane, which does nothing until it runs.
func NewLane(o LaneOptions) *Lane {
	return &Lane{
		node:         o.Node,
		index:        o.Index,
		prefix:       o.Prefix,
		noQuarantine: o.NoQuarantine,
		fleet:        o.Fleet,
		admission:    o.Admission,
		waiters:      o.Waiters,
		timing:       newTiming(o.NodeTimeout),
		clock:        o.Clock,
		rules:        o.Rules,
		observe:      o.Observe,
		timed:        o.RoundTrip,
		wake:         make(chan struct{}, 1),
		admits:       make(chan chan<- struct{}),
		settled:      make(chan struct{}),
		state:        NodeConnecting,
		reason:       errNotYet,
		owed:         map[string]owedRelease{},
		member:       o.Admission.Member(o.Index),
	}
}

var (
	errNotYet = errors.New("not connected yet")
	errFull   = fmt.Errorf("%d calls wait for it already", maxQueue)
	errStale  = errors.New("it could not be sent in time")
)

// do hands a call over to the node. It never blocks: where the call cannot be
// sent, its voter hears so at once. A release is kept all the same.
func (l *Lane) Do(c Call, now time.Duration) {
	if c.IsRelease() && c.Voter == nil && !l.rules.Owes(c.Placed.Has(l.index)) {
		return // there is nothing to give back, and nobody who asks
	}
	l.mu.Lock()
	failure := l.admit(&c, now)
	l.mu.Unlock()
	switch {
	case failure == nil:
		l.Stir()
	case c.Gives != nil:
		gives := *c.Gives
		c.Gives = nil
		c.answer(l.index, nil, failure)
		l.Do(gives, now)
	default:
		c.answer(l.index, nil, failure)
	}
}

// stir wakes the lane.
func (l *Lane) Stir() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake already
	}
}

// lookSoon has the lane look at its node.
func (l *Lane) LookSoon() {
	l.lookNow.Store(true)
	l.Stir()
}

// admit queues c or says why not. The caller holds mu.
func (l *Lane) admit(c *Call, now time.Duration) *NodeError {
	switch {
	case !l.isConnected():
		l.owe(c)
		return l.failure(c, FailedDown, l.reason)
	case c.IsRelease(): // never dropped: bounded by the acquires that were let in
	case !l.rules.Votes(l.state):
		return l.failure(c, failureOf(l.state), l.why(max(l.until-now, 0)))
	case c.Urgent && len(l.urgent) < maxUrgent:
		l.urgent = append(l.urgent, *c)
		return nil
	case l.sentAt != 0 && now-l.sentAt > l.timing.answer:
		return l.failure(c, FailedTimeout, Silence(now-l.sentAt))
	case len(l.queue) >= maxQueue:
		return l.failure(c, FailedFull, errFull)
	}
	c.goesTo(l.index)
	l.queue = append(l.queue, *c)
	return nil
}

// isConnected tells whether a release can be sent. The caller holds mu.
func (l *Lane) isConnected() bool { return l.state != NodeDown && l.state != NodeConnecting }

// owe keeps a release for later if its token may be on the node. The caller
// holds mu.
func (l *Lane) owe(c *Call) {
	if c.Gives != nil {
		c = c.Gives
	}
	if c.IsRelease() && l.rules.Owes(c.Placed.Has(l.index)) {
		l.owed[c.Ops[0].Token] = owedRelease{ops: c.Ops, until: c.Until}
	}
}

func (l *Lane) failure(c *Call, kind Failure, err error) *NodeError {
	return &NodeError{Node: l.node.Name, Op: c.Op, Failure: kind, Err: err}
}

func (c *Call) answer(node int, replies []redis.Reply, failure *NodeError) {
	if c.Voter != nil {
		c.Voter.Vote(node, replies, failure)
	}
	if c.Gives != nil && failure != nil {
		c.Gives.answer(node, nil, failure)
	}
}

// run connects, serves and connects again until ctx ends.
func (l *Lane) Run(ctx context.Context) {
	backoff, flaky := firstBackoff, firstBackoff
	settle := sync.OnceFunc(func() { close(l.settled) })
	defer settle()
	for ctx.Err() == nil {
		conn, err := l.connect(ctx)
		l.rounds.Add(1)
		if err != nil {
			l.down(err)
			settle()
			pause(ctx, backoff/2+l.rules.Jitter(l.node.Name, backoff/2+1))
			backoff = min(2*backoff, l.timing.backoff)
			continue
		}
		backoff = firstBackoff
		settle()
		since := l.clock()
		err = l.serve(ctx, conn)
		conn.Close()
		l.session.doubt = errors.As(err, new(Silence))
		l.down(err)
		flaky = l.rest(ctx, flaky, l.clock()-since)
	}
}

// rest waits before a node is connected to again that breaks its connections soon,
// again and again: a log-in costs more than a ballot. The first one that broke is
// replaced at once. It returns what to wait next.
func (l *Lane) rest(ctx context.Context, flaky, lasted time.Duration) time.Duration {
	if lasted >= heartbeat {
		return firstBackoff
	}
	if flaky > firstBackoff {
		pause(ctx, flaky/2+l.rules.Jitter(l.node.Name, flaky/2+1))
	}
	return min(2*flaky, l.timing.backoff)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// serve sends what is handed over until the connection breaks or ctx ends.
func (l *Lane) serve(ctx context.Context, conn redis.Conn) error {
	until := l.until // which this goroutine alone writes
	beat := time.NewTimer(l.nextLook())
	defer beat.Stop()
	// What was owed while the connection was made comes before what was handed
	// over since.
	l.session.owed = true
	if err := l.lookAfter(conn); err != nil {
		return err
	}
	for {
		if err := l.sendWaiting(conn); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return l.drain(conn)
		}
		if l.until != until { // once for each: other traffic must not put it off for ever
			until = l.until
			beat.Reset(l.nextLook())
		}
		l.rounds.Add(1)
		if err := l.await(ctx, conn, beat); err != nil {
			return err
		}
	}
}

// await waits until there is something to do. A heartbeat that is due comes
// before what was handed over, which goes out with it.
func (l *Lane) await(ctx context.Context, conn redis.Conn, beat *time.Timer) error {
	select {
	case <-beat.C:
		l.beat(beat)
		return nil
	default:
	}
	select {
	case <-l.wake:
		l.rules.Gather()
		if l.lookNow.Load() {
			l.lookNow.Store(false)
			l.session.look = true
		}
	case <-beat.C:
		l.beat(beat)
	case done := <-l.admits:
		return l.admitEarly(conn, done)
	case <-ctx.Done():
	}
	return nil
}

// beat has the node looked at, and what it refused asked for again.
func (l *Lane) beat(beat *time.Timer) {
	l.session.look, l.session.rights, l.session.owed, l.session.probe = true, true, true, l.isDenied()
	if !l.tracking.Load() {
		l.session.hearer = 0
	}
	beat.Reset(l.nextLook())
}

// nextLook is the time until the node is looked at again: a heartbeat, or the
// end of its quarantine; where that is past and something else is wanting, soon.
func (l *Lane) nextLook() time.Duration {
	left := l.until - l.clock()
	switch {
	case l.until == 0:
		return heartbeat
	case left <= 0:
		return heartbeat / 4
	}
	return min(left, heartbeat)
}

// drain sends what was handed over before the lane was told to stop: a release
// that its caller believes to be on its way goes out.
func (l *Lane) drain(conn redis.Conn) error {
	for l.hasWaiting() {
		if err := l.sendWaiting(conn); err != nil {
			return err
		}
	}
	return ErrClosed
}

// down fails everything that waits: nothing is sent over a connection that is
// not there. What was never sent is nowhere, and releases are kept.
func (l *Lane) down(reason error) {
	l.setState(NodeDown, reason, func() []int { return l.member.Disconnected(l.clock()) })
	l.hearNoMore()
	l.mu.Lock()
	waiting := append(l.urgent, l.queue...)
	l.urgent, l.queue = nil, nil
	for i := range waiting {
		waiting[i].neverSent(l.index)
		l.owe(&waiting[i])
	}
	l.dropExpired()
	l.mu.Unlock()
	for i := range waiting {
		waiting[i].answer(l.index, nil, l.failure(&waiting[i], FailedDown, reason))
	}
}

// dropExpired forgets owed releases whose keys have expired by now. The caller
// holds mu.
func (l *Lane) dropExpired() {
	now := l.clock()
	if now-l.owedSeen < owedSweep {
		return
	}
	l.owedSeen = now
	for token, release := range l.owed {
		if release.until < now {
			delete(l.owed, token)
		}
	}
}

// setState makes a state known; record records it with the node's admission, and returns
// the nodes to look at now.
func (l *Lane) setState(state NodeState, reason error, record func() []int) {
	l.mu.Lock()
	changed := l.state != state || !sameText(l.reason, reason)
	l.state, l.reason = state, reason
	status := l.statusLocked()
	l.mu.Unlock()
	l.fleet.LookAt(record())
	if changed && l.observe != nil {
		l.observe(l.asShown(status))
	}
}

// silence is how long a node that was asked has not answered.
type Silence time.Duration

func (s Silence) Error() string {
	return fmt.Sprintf("silent for %v", time.Duration(s).Round(time.Millisecond))
}

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}
