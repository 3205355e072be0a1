package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Lane sends calls to one node, with one goroutine (Run) and one connection. It sends all waiting
// calls as one group, like the group commit of a database, so the throughput grows with the load.
// Calls are sent in the order in which Do got them, so a release never overtakes its acquire.
// After a broken connection, connect restores that order. A second goroutine (Listen) has its own
// connection, on which the node calls waiters. Package redlock starts both, ends them
// with their contexts, and waits for them in Quorum.Close.
type Lane struct {
	node             redis.Node
	index            int
	host             string // the name of this host
	prefix           string // of the keys of locks
	noQuarantine     bool
	fleet            Peers
	admission        *admission.Fleet
	waiters          *Waiters
	timing           timing
	clock            func() time.Duration
	hooks            *Hooks
	observe          func(Status)
	onRoundTrip      func(node string, took time.Duration)
	signal           chan struct{}        // of capacity 1: a call waits
	listening        atomic.Bool          // the node calls waiters
	lookNow          atomic.Bool          // look at the node as soon as the lane wakes
	pingNow          atomic.Bool          // find out as soon as the lane wakes whether the connection has broken
	admitRequests    chan chan<- struct{} // requests to end the quarantine; the lane signals the channel in it after it tried
	hostRequests     chan chan<- hosts    // requests for the hosts that use the node; the lane sends them to the channel in it
	firstAttemptDone chan struct{}        // closed when the first attempt to connect has ended, or takes long
	settle           func()               // closes firstAttemptDone
	mayListen        chan struct{}        // of capacity 1: a connection was made
	loginTook        atomic.Int64         // the time.Duration of the attempt that made the present or last connection
	rounds           atomic.Uint64        // rounds of the loop
	connections      atomic.Uint64        // connections that were made

	// mu guards the fields below, up to listenErr. It is never held during I/O or a vote, and
	// no other mutex is taken while it is held.
	mu            sync.Mutex
	state         State
	reason        error                     // why state is not Ready
	quarantineEnd time.Duration             // BootTime at which a quarantine ends
	needsNodes    bool                      // the quarantine lasts beyond quarantineEnd: see admission.VoteStatus
	warnings      []string                  // what makes locks less safe or available, from the node's INFO
	queue         []Call                    // not sent yet
	urgent        []Call                    // not sent yet, and sent before queue
	oldestSentAt  time.Duration             // when the oldest group in progress was sent; 0: none is
	pending       map[string]pendingRelease // by token: releases that the node has not answered
	rtt           time.Duration
	readTrip      time.Duration // the last round trip of calls that only read; 0: none yet
	writeTrip     time.Duration // the last round trip of calls that wrote; 0: none yet
	farTrip       time.Duration // the shortest round trip, if that is longer than node_timeout; otherwise 0
	slowWrite     time.Duration // the shortest round trip of calls that wrote, if that is longer than node_timeout; otherwise 0
	lastError     error         // the last error that it answered, although it is ready
	denied        error         // why it refuses what locks need, although it is ready
	listenErr     error         // why it does not call waiters
	publishes     bool          // its ACL allows scripts to call waiters

	// Only the goroutine of Run uses the fields below.
	spare         []Call     // swapped with queue
	trip          *roundTrip // the group that is being sent or received
	alone         roundTrip  // used while no other group is in progress
	window        window
	retry         retry
	minRoundTrip  minRoundTrip
	minWrite      minRoundTrip    // of calls that wrote
	notExecuted   []Call          // calls of groups in progress that the node refused with NOSCRIPT: see processReply
	admitting     chan<- struct{} // a request to end the quarantine
	asksHosts     chan<- hosts    // a request for the hosts
	lookTurn      uint64          // the turn in which the node was last looked at
	lookIsShort   bool            // the last look was short
	lookHasRights bool            // the last look also asked what its ACL lacks
	lookShowsHost bool            // the last look also showed that this process lives
	lookReports   bool            // the last look also said which list this host has
	encoder       script.Encoder
	session       laneSession
	member        *admission.Member // decides whether the node may vote
	pendingSwept  time.Duration     // when expired releases were last dropped
	deniedAt      string            // the key of a call that it refused: see refusal.go
}

// laneSession is what the lane knows about its node over this connection.
type laneSession struct {
	clientID     int64 // CLIENT ID of the last connection, to kill it
	runID        string
	epoch        string        // the incarnation that was verified over this connection; "": it has no vote
	offset       time.Duration // the node's TIME (since 1970) minus our BootTime
	needsLook    bool          // find out again whether it may vote
	isOutdated   bool          // the node has denied its vote: no call is sent before needsLook is done
	needsPing    bool          // find out whether this connection has broken
	needsRights  bool          // also find out what its ACL lacks
	isShort      bool          // that look may be short: see appendLook
	info         *fullInfo     // of the last look that was not short; nil: there was none over this connection
	strictKeys   bool          // it lets scripts use only the keys that they declare
	needsScripts bool          // SCRIPT LOAD is needed again
	mustRepeat   bool          // repeat the pending releases
	needsProbe   bool          // find out whether it still refuses what locks need
	hasRefused   bool          // it has answered with an error since the last heartbeat
	mustProbe    bool          // it was silent: it must answer a script before it is ready
}

// fullInfo is the whole INFO of a node.
type fullInfo struct {
	admission.NodeInfo
	seconds int64         // the node's TIME then
	at      time.Duration // BootTime
}

// timing holds the limits that follow from node_timeout.
type timing struct {
	answer  time.Duration // node_timeout: an answer counts until then
	silence time.Duration // a connection that is silent for this long is replaced
	connect time.Duration // the network makes a connection
}

func newTiming(nodeTimeout time.Duration) timing {
	return timing{
		answer:  nodeTimeout,
		silence: max(8*nodeTimeout, 400*time.Millisecond),
		connect: max(4*nodeTimeout, 250*time.Millisecond),
	}
}

// SilenceLimit returns how long a connection may be silent before it is replaced. Until then, the
// node may execute what was sent over it.
func SilenceLimit(nodeTimeout time.Duration) time.Duration { return newTiming(nodeTimeout).silence }

const (
	heartbeat    = admission.LookInterval // how often TIME, INFO and the epoch are read
	maxQueue     = 4096                   // calls that may wait for one node, besides releases and urgent calls
	maxUrgent    = 64                     // urgent calls that may wait
	pendingGroup = 512                    // pending releases sent at once
	pendingSweep = time.Second            // how often expired pending releases are dropped
)

// Options are the node of a lane, and the parts that it works with.
type Options struct {
	Node         redis.Node
	Index        int    // of the node
	Host         string // the name of this host
	Prefix       string // of the keys of locks
	NodeTimeout  time.Duration
	NoQuarantine bool
	Admission    *admission.Fleet
	Fleet        Peers
	Waiters      *Waiters
	Hooks        *Hooks
	Clock        func() time.Duration // BootTime
	Observe      func(Status)         // may be nil
	RoundTrip    func(node string, took time.Duration)
}

// Peers is what a lane needs of the other nodes.
type Peers interface {
	// LookAt makes the lanes of some nodes look at them now.
	LookAt(nodes []int)
	// Judged applies what a verdict means for other nodes, the operator and leases.
	Judged(node string, v *admission.Verdict)
	// CopyCounters returns the largest value of each fencing counter of the nodes that may vote,
	// and what these nodes say of themselves. It does not ask the given node, which waits for it.
	CopyCounters(ctx context.Context, to int) *admission.Sources
}

// NewLane makes a lane, which does nothing until it runs.
func NewLane(o Options) *Lane {
	l := &Lane{
		node:             o.Node,
		index:            o.Index,
		host:             o.Host,
		prefix:           o.Prefix,
		noQuarantine:     o.NoQuarantine,
		fleet:            o.Fleet,
		admission:        o.Admission,
		waiters:          o.Waiters,
		timing:           newTiming(o.NodeTimeout),
		clock:            o.Clock,
		hooks:            o.Hooks,
		observe:          o.Observe,
		onRoundTrip:      o.RoundTrip,
		signal:           make(chan struct{}, 1),
		admitRequests:    make(chan chan<- struct{}),
		hostRequests:     make(chan chan<- hosts),
		firstAttemptDone: make(chan struct{}),
		mayListen:        make(chan struct{}, 1),
		state:            Connecting,
		publishes:        true,
		reason:           errNotConnected,
		pending:          map[string]pendingRelease{},
		member:           o.Admission.Member(o.Index),
	}
	l.trip = &l.alone
	l.retry.first = 2 * l.timing.connect
	l.settle = sync.OnceFunc(func() { close(l.firstAttemptDone) })
	return l
}

var (
	errNotConnected = errors.New("not connected yet")
	errFull         = fmt.Errorf("%d calls wait for it already", maxQueue)
	errStale        = errors.New("it could not be sent in time")
)

// Do passes a call to the lane. It never blocks. If the call cannot be sent, its voter gets the
// failure at once. A release is still kept for later.
func (l *Lane) Do(c Call, now time.Duration) {
	if c.IsRelease() && c.Voter == nil && !c.Placed.Has(l.index) {
		return // there is nothing to release, and no caller waits
	}
	l.mu.Lock()
	failure := l.enqueueLocked(&c, now)
	l.mu.Unlock()
	switch {
	case failure == nil:
		l.Wake()
	case c.Release != nil:
		release := *c.Release
		c.Release = nil
		c.answer(l.index, nil, failure)
		l.Do(release, now)
	default:
		c.answer(l.index, nil, failure)
	}
}

// Wake wakes the lane.
func (l *Lane) Wake() {
	select {
	case l.signal <- struct{}{}:
	default: // it is awake
	}
}

// LookSoon makes the lane look at its node soon.
func (l *Lane) LookSoon() {
	l.lookNow.Store(true)
	l.Wake()
}

// enqueueLocked queues c, or returns why it cannot. The caller holds mu.
func (l *Lane) enqueueLocked(c *Call, now time.Duration) *Error {
	switch {
	case !l.isConnectedLocked():
		l.addPendingLocked(c)
		return l.failure(c, FailedDown, l.reason)
	case c.IsRelease(): // never dropped; bounded by the acquires that were admitted
	case l.state != Ready:
		return l.failure(c, failureOf(l.state), l.whyNoVoteLocked(l.quarantineLeftLocked(now)))
	case c.Urgent && len(l.urgent) < maxUrgent:
		l.urgent = append(l.urgent, *c)
		return nil
	case l.oldestSentAt != 0 && now-l.oldestSentAt > l.timing.answer:
		return l.failure(c, FailedTimeout, l.lateLocked(now-l.oldestSentAt))
	case len(l.queue) >= maxQueue:
		return l.failure(c, FailedFull, errFull)
	}
	c.markSent(l.index)
	l.queue = append(l.queue, *c)
	return nil
}

// isConnectedLocked reports whether a release can be sent. The caller holds mu.
func (l *Lane) isConnectedLocked() bool { return l.state != Down && l.state != Connecting }

// addPendingLocked adds a release to the pending ones if its token may be on the node.
func (l *Lane) addPendingLocked(c *Call) {
	if c.Release != nil {
		c = c.Release
	}
	if c.IsRelease() && c.Placed.Has(l.index) {
		ops := slices.DeleteFunc(slices.Clone(c.Ops), func(o script.Operation) bool { return o.Op == script.Reenter }) // its client may have left by then
		l.pending[ops[0].Key+script.Separator+ops[0].Token] = pendingRelease{ops: ops, until: c.Until}
	}
}

func (l *Lane) failure(c *Call, kind Failure, err error) *Error {
	return &Error{Node: l.node.Name, Op: c.Op, Failure: kind, Err: err}
}

func (c *Call) answer(node int, replies []redis.Reply, failure *Error) {
	if c.Voter != nil {
		c.Voter.Vote(node, replies, failure)
	}
	if c.Release != nil && failure != nil {
		c.Release.answer(node, nil, failure)
	}
}

// Run connects, serves and reconnects until ctx ends.
func (l *Lane) Run(ctx context.Context) {
	jitter := func(n time.Duration) time.Duration { return l.hooks.Jitter(l.node.Name, n) }
	defer l.settle()
	for ctx.Err() == nil {
		began := l.clock()
		conn, err := l.connect(ctx)
		since := l.clock()
		l.rounds.Add(1)
		if err != nil {
			l.failWaiting(err)
			l.settle()
			l.pause(ctx, l.retry.failed(err, jitter))
			continue
		}
		l.settle()
		l.loginTook.Store(int64(max(since-began, 0))) // a simulated pause sets the host's clock back
		l.letListen()
		err = l.serve(ctx, conn)
		l.session.mustProbe = errors.As(err, new(Silence))
		l.failWaiting(l.explainSilence(err))
		l.pause(ctx, l.retry.broke(l.clock()-since, jitter))
	}
}

// pause waits for d or until ctx ends. It counts rounds meanwhile: see Rounds.
func (l *Lane) pause(ctx context.Context, d time.Duration) {
	for ; d > 0 && ctx.Err() == nil; d -= heartbeat / 2 {
		pause(ctx, min(d, heartbeat/2))
		l.rounds.Add(1)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// serve sends the calls that Do gets until the connection breaks or ctx ends.
func (l *Lane) serve(ctx context.Context, conn redis.Conn) (err error) {
	l.window.conn = conn
	defer func() { l.closeWindow(err) }()
	until := l.quarantineEnd // only this goroutine writes l.quarantineEnd
	heartbeatTimer := time.NewTimer(l.nextLook())
	defer heartbeatTimer.Stop()
	// Pending releases are sent before the calls that arrived since then.
	l.session.mustRepeat = true
	if err := l.followUp(conn); err != nil {
		return err
	}
	for {
		if err := l.sendWaiting(conn); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return l.drain(conn)
		}
		if l.quarantineEnd != until { // reset only when l.quarantineEnd changes, or other traffic could delay the heartbeat for ever
			until = l.quarantineEnd
			heartbeatTimer.Reset(l.nextLook())
		}
		l.rounds.Add(1)
		if err := l.await(ctx, heartbeatTimer); err != nil {
			return err
		}
	}
}

// await waits until there is something to do. An answer comes first, then a heartbeat that is
// due. The waiting calls are sent with the heartbeat.
func (l *Lane) await(ctx context.Context, heartbeatTimer *time.Timer) error {
	select {
	case trip := <-l.window.received:
		return l.processReply(trip)
	default:
	}
	select {
	case <-heartbeatTimer.C:
		l.onHeartbeat(heartbeatTimer)
		return nil
	default:
	}
	signal := l.signal
	if !l.canSend() {
		signal = nil // until there is an answer
	}
	select {
	case trip := <-l.window.received:
		return l.processReply(trip)
	case <-signal:
		l.hooks.Gather()
		if l.lookNow.Load() {
			l.lookNow.Store(false)
			l.session.needsLook = true
		}
		l.session.needsPing = l.session.needsPing || l.pingNow.Swap(false)
	case <-heartbeatTimer.C:
		l.onHeartbeat(heartbeatTimer)
	case l.admitting = <-l.admitRequests:
	case l.asksHosts = <-l.hostRequests:
	case <-ctx.Done():
	}
	return nil
}

// onHeartbeat requests a look at the node, and a retry of what the node refused before.
func (l *Lane) onHeartbeat(heartbeatTimer *time.Timer) {
	isNews := l.minRoundTrip.isSettled() && l.noteDistance(l.minRoundTrip.shortest())
	if l.minWrite.isSettled() {
		isNews = l.notePace(l.minWrite.shortest()) || isNews
	}
	if isNews && l.observe != nil {
		l.observe(l.Status())
	}
	l.minRoundTrip.age()
	l.minWrite.age()
	l.session.isShort = !l.session.needsLook && l.mayLookShort()
	l.session.needsLook, l.session.needsRights, l.session.mustRepeat, l.session.needsProbe = true, !l.session.isShort, true, l.isDenied() || l.mayWriteSlowly()
	heartbeatTimer.Reset(l.nextLook())
}

// fullLookInterval is how often a node in good order is asked for its whole INFO, and for what its
// ACL lacks: settings that an operator changes. A thousand idle hosts look at a node every second, so
// this is most of what they cost it.
const fullLookInterval = 5 * heartbeat

// mayLookShort reports whether the next look may be short: the node votes, it was asked for
// everything recently, and what was seen then can change only by an operator.
func (l *Lane) mayLookShort() bool {
	info := l.session.info
	return info != nil && l.session.epoch != "" && !l.node.Durable && !info.MayDeny && info.Evicts == "" && !l.isDenied() &&
		l.clock()-info.at < fullLookInterval-heartbeat/2
}

// nextLook returns the time until the next look at the node: a heartbeat, or less until the end
// of its quarantine. It is a quarter of a heartbeat if that end has passed and the node needs
// something else.
func (l *Lane) nextLook() time.Duration {
	left := l.quarantineEnd - l.clock()
	switch {
	case l.quarantineEnd == 0:
		return heartbeat
	case left <= 0:
		return heartbeat / 4
	}
	return min(left, heartbeat)
}

// drain sends the calls that Do got before the lane was stopped, because the callers rely on
// releases being sent.
func (l *Lane) drain(conn redis.Conn) error {
	for {
		var err error
		switch {
		case !l.window.isEmpty():
			err = l.receiveOldest()
		case l.hasWaiting() || len(l.notExecuted) > 0:
			err = l.sendAlone(conn)
		default:
			return ErrClosed
		}
		if err != nil {
			return err
		}
	}
}

// failWaiting fails all waiting calls, because there is no connection. Calls that were not sent have
// left nothing on the node. Releases are kept.
func (l *Lane) failWaiting(reason error) {
	l.setState(Down, reason, func() []int { return l.member.Disconnected(l.clock()) })
	l.mu.Lock()
	waiting := append(l.urgent, l.queue...)
	l.urgent, l.queue = nil, nil
	for i := range waiting {
		waiting[i].markNotSent(l.index)
		l.addPendingLocked(&waiting[i])
	}
	l.dropExpiredLocked()
	l.mu.Unlock()
	for i := range waiting {
		waiting[i].answer(l.index, nil, l.failure(&waiting[i], FailedDown, reason))
	}
}

// dropExpiredLocked forgets pending releases whose keys have expired. The caller holds mu.
func (l *Lane) dropExpiredLocked() {
	now := l.clock()
	if now-l.pendingSwept < pendingSweep {
		return
	}
	l.pendingSwept = now
	for token, release := range l.pending {
		if release.until < now {
			delete(l.pending, token)
		}
	}
}

// setState sets and reports a state. record records it with the node's admission, and returns the
// nodes to look at now. It reports whether the state has changed.
func (l *Lane) setState(state State, reason error, record func() []int) (changed bool) {
	l.mu.Lock()
	before := l.state
	news := before != state || fmt.Sprint(l.reason) != fmt.Sprint(reason)
	l.state, l.reason = state, reason
	status := l.statusLocked()
	l.mu.Unlock()
	l.fleet.LookAt(record())
	if news && l.observe != nil {
		l.observe(l.withDenial(status))
	}
	return before != state
}

// Silence is how long a node has not answered.
type Silence time.Duration

func (s Silence) Error() string {
	return fmt.Sprintf("silent for %v", time.Duration(s).Round(time.Millisecond))
}
