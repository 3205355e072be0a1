package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// lane is one node's ordered line of work: one goroutine and one connection.
// It takes everything that waits and sends it as one group, like a database's
// group commit; that is where the throughput comes from. It is also what keeps
// a release behind its acquire: commands travel in the order in which they
// were handed over, on one connection, and where a connection ends the order
// is restored (see connect).
type lane struct {
	node    Node
	index   int
	fleet   *fleet
	timing  timing
	clock   func() time.Duration
	rules   *rules
	observe func(NodeStatus)
	timed   func(node string, took time.Duration)
	wake    chan struct{}        // of capacity 1: something was handed over
	tracks  atomic.Bool          // it tells when a lock is given back that was listened to
	hearer  atomic.Int64         // id of the connection on which it is to tell; 0: none
	lookNow atomic.Bool          // the node is to be looked at when the lane wakes
	admits  chan chan<- struct{} // somebody ends the quarantine, and is told when that was tried
	settled chan struct{}        // closed when the first attempt to connect has ended
	rounds  rounds

	mu      sync.Mutex // guards what follows; never held across I/O or a vote
	state   NodeState
	reason  error                  // why state is not NodeReady
	until   time.Duration          // of a quarantine: BootTime when it is over
	warning []string               // what its INFO says that could be better
	queue   []call                 // handed over, not sent
	urgent  []call                 // the same, and to be sent before those
	sentAt  time.Duration          // when the group under way was sent; 0: none is
	owed    map[string]owedRelease // by token: what this node must still hear
	rtt     time.Duration
	trouble error // what it answered with an error lately, though it is ready
	denied  error // why it refuses all that locks need, though it is ready
	mute    error // why it does not tell when locks are given back

	// What follows belongs to the lane's goroutine.
	spare    []call // swapped with queue
	spans    []span // which calls went into which command
	armed    []*arming
	commands []Command
	replies  []Reply
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
type call struct {
	op      string // for errors: "acquire"
	ops     []script.Operation
	several bool // for several leases
	// urgent: what is held already goes before what is wanted. It is not refused for
	// what others have the node do, and waits for one group of theirs at most.
	urgent bool

	// notAfter, of an acquire and a repair: the BootTime after which it must not
	// be sent and the node must not act on it. 0: no such bound.
	notAfter time.Duration
	// until, of a release: it is repeated until the node answered or BootTime is
	// past until, when the key has expired anyway.
	until time.Duration
	// placed, of an acquire, a repair, a mark and a release: where the token may be.
	placed *nodeSet
	// gives, of a hand-over, is the release that it is at once: what is left to do
	// where it was not done.
	gives  *call
	arming *arming // what the node is to tell of from now on; nil: nothing
	voter  voter   // gets the answer; nil: nobody asks
}

// isRelease tells what gives back, a lock or a mark, which every node is sent and none
// may drop, from what wants a vote.
func (c *call) isRelease() bool { return c.ops[0].Op.Releases() }

// goesTo: a node will be sent it.
func (c *call) goesTo(node int) {
	if c.placed != nil && !c.isRelease() {
		c.placed.add(node)
	}
	if c.arming != nil {
		c.arming.waiter.marked.add(node)
	}
}

// neverSent: what would have taken the lock is not on the node. (A repair may be of one
// key of several: the others are there.)
func (c *call) neverSent(node int) {
	if c.placed != nil && c.ops[0].Op.Takes() {
		c.placed.remove(node)
	}
}

// voter gets a node's answer to a call: a reply for each of its operations, or
// what went wrong. vote is called once a node, on any goroutine, must not block
// and must not keep replies.
type voter interface {
	vote(node int, replies []Reply, failure *NodeError)
}

// nodeSet is a set of nodes by index.
type nodeSet struct{ bits atomic.Uint64 }

func (s *nodeSet) has(node int) bool { return s.bits.Load()&(1<<node) != 0 }
func (s *nodeSet) count() int        { return bits.OnesCount64(s.bits.Load()) }
func (s *nodeSet) add(node int)      { s.bits.Or(1 << node) }
func (s *nodeSet) remove(node int)   { s.bits.And(^(uint64(1) << node)) }

type owedRelease struct {
	ops   []script.Operation
	until time.Duration
}

func newLane(node Node, index int, f *fleet) *lane {
	o := f.options
	return &lane{
		node:    node,
		index:   index,
		fleet:   f,
		timing:  newTiming(o.NodeTimeout),
		clock:   o.Clock,
		rules:   o.rules,
		observe: o.Observe,
		timed:   o.RoundTrip,
		wake:    make(chan struct{}, 1),
		admits:  make(chan chan<- struct{}),
		settled: make(chan struct{}),
		state:   NodeConnecting,
		reason:  errNotYet,
		owed:    map[string]owedRelease{},
		member:  f.admission.Member(index),
	}
}

var (
	errNotYet = errors.New("not connected yet")
	errFull   = fmt.Errorf("%d calls wait for it already", maxQueue)
	errStale  = errors.New("it could not be sent in time")
)

// do hands a call over to the node. It never blocks: where the call cannot be
// sent, its voter hears so at once. A release is kept all the same.
func (l *lane) do(c call, now time.Duration) {
	if c.isRelease() && c.voter == nil && !l.rules.owes(c.placed.has(l.index)) {
		return // there is nothing to give back, and nobody who asks
	}
	l.mu.Lock()
	failure := l.admit(&c, now)
	l.mu.Unlock()
	switch {
	case failure == nil:
		l.stir()
	case c.gives != nil:
		gives := *c.gives
		c.gives = nil
		c.answer(l.index, nil, failure)
		l.do(gives, now)
	default:
		c.answer(l.index, nil, failure)
	}
}

// stir wakes the lane.
func (l *lane) stir() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake already
	}
}

// lookSoon has the lane look at its node.
func (l *lane) lookSoon() {
	l.lookNow.Store(true)
	l.stir()
}

// admit queues c or says why not. The caller holds mu.
func (l *lane) admit(c *call, now time.Duration) *NodeError {
	switch {
	case !l.isConnected():
		l.owe(c)
		return l.failure(c, FailedDown, l.reason)
	case c.isRelease(): // never dropped: bounded by the acquires that were let in
	case !l.rules.votes(l.state):
		return l.failure(c, failureOf(l.state), l.why(max(l.until-now, 0)))
	case c.urgent && len(l.urgent) < maxUrgent:
		l.urgent = append(l.urgent, *c)
		return nil
	case l.sentAt != 0 && now-l.sentAt > l.timing.answer:
		return l.failure(c, FailedTimeout, silence(now-l.sentAt))
	case len(l.queue) >= maxQueue:
		return l.failure(c, FailedFull, errFull)
	}
	c.goesTo(l.index)
	l.queue = append(l.queue, *c)
	return nil
}

// isConnected tells whether a release can be sent. The caller holds mu.
func (l *lane) isConnected() bool { return l.state != NodeDown && l.state != NodeConnecting }

// owe keeps a release for later if its token may be on the node. The caller
// holds mu.
func (l *lane) owe(c *call) {
	if c.gives != nil {
		c = c.gives
	}
	if c.isRelease() && l.rules.owes(c.placed.has(l.index)) {
		l.owed[c.ops[0].Token] = owedRelease{ops: c.ops, until: c.until}
	}
}

func (l *lane) failure(c *call, kind Failure, err error) *NodeError {
	return &NodeError{Node: l.node.Name, Op: c.op, Failure: kind, Err: err}
}

func (c *call) answer(node int, replies []Reply, failure *NodeError) {
	if c.voter != nil {
		c.voter.vote(node, replies, failure)
	}
	if c.gives != nil && failure != nil {
		c.gives.answer(node, nil, failure)
	}
}

// run connects, serves and connects again until ctx ends.
func (l *lane) run(ctx context.Context) {
	backoff, flaky := firstBackoff, firstBackoff
	settle := sync.OnceFunc(func() { close(l.settled) })
	defer settle()
	for ctx.Err() == nil {
		conn, err := l.connect(ctx)
		l.rounds.again()
		if err != nil {
			l.down(err)
			settle()
			pause(ctx, backoff/2+l.rules.jitter(l.node.Name, backoff/2+1))
			backoff = min(2*backoff, l.timing.backoff)
			continue
		}
		backoff = firstBackoff
		settle()
		since := l.clock()
		err = l.serve(ctx, conn)
		conn.Close()
		l.session.doubt = errors.As(err, new(silence))
		l.down(err)
		flaky = l.rest(ctx, flaky, l.clock()-since)
	}
}

// rest waits before a node is connected to again that breaks its connections soon,
// again and again: a log-in costs more than a ballot. The first one that broke is
// replaced at once. It returns what to wait next.
func (l *lane) rest(ctx context.Context, flaky, lasted time.Duration) time.Duration {
	if lasted >= heartbeat {
		return firstBackoff
	}
	if flaky > firstBackoff {
		pause(ctx, flaky/2+l.rules.jitter(l.node.Name, flaky/2+1))
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
func (l *lane) serve(ctx context.Context, conn Conn) error {
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
		l.rounds.again()
		if err := l.await(ctx, conn, beat); err != nil {
			return err
		}
	}
}

// await waits until there is something to do. A heartbeat that is due comes
// before what was handed over, which goes out with it.
func (l *lane) await(ctx context.Context, conn Conn, beat *time.Timer) error {
	select {
	case <-beat.C:
		l.beat(beat)
		return nil
	default:
	}
	select {
	case <-l.wake:
		l.rules.gather()
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
func (l *lane) beat(beat *time.Timer) {
	l.session.look, l.session.rights, l.session.owed, l.session.probe = true, true, true, l.isDenied()
	if !l.tracks.Load() {
		l.session.hearer = 0
	}
	beat.Reset(l.nextLook())
}

// nextLook is the time until the node is looked at again: a heartbeat, or the
// end of its quarantine; where that is past and something else is wanting, soon.
func (l *lane) nextLook() time.Duration {
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
func (l *lane) drain(conn Conn) error {
	for l.hasWaiting() {
		if err := l.sendWaiting(conn); err != nil {
			return err
		}
	}
	return ErrClosed
}

// down fails everything that waits: nothing is sent over a connection that is
// not there. What was never sent is nowhere, and releases are kept.
func (l *lane) down(reason error) {
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
func (l *lane) dropExpired() {
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
func (l *lane) setState(state NodeState, reason error, record func() []int) {
	l.mu.Lock()
	changed := l.state != state || !sameText(l.reason, reason)
	l.state, l.reason = state, reason
	status := l.statusLocked()
	l.mu.Unlock()
	l.fleet.lookAt(record())
	if changed && l.observe != nil {
		l.observe(l.asShown(status))
	}
}

// silence is how long a node that was asked has not answered.
type silence time.Duration

func (s silence) Error() string {
	return fmt.Sprintf("silent for %v", time.Duration(s).Round(time.Millisecond))
}

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}
