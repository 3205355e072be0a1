package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// simNode is a node of a world.
type simNode struct {
	*redlocktest.Sim
	index         int
	ambush        atomic.Bool // flush the node just before its next quarantine ends
	releases      releases
	confirmations confirmations
	downgrades    confirmations                         // when the node last made each token shared
	onCommand     atomic.Pointer[func(redlock.Command)] // is called for each executed command; may be nil
	copied        atomic.Bool                           // it got the keys of another node, whose clock differs
	copies        copying
	movedEpoch    atomic.Value // string: the epoch of the Redis at the last move; a vote in it does not count
	durable       bool         // the daemons know this
	latency       latency
}

func (w *world) newNode(i int) *simNode {
	random := w.plan.stream(streamNode + i)
	n := &simNode{Sim: redlocktest.NewSim(string(rune('a' + i))), index: i, releases: releases{ids: map[[2]string]bool{}}, confirmations: confirmations{last: map[string]time.Duration{}}, downgrades: confirmations{last: map[string]time.Duration{}}}
	n.latency.random, n.latency.usual = random, between(random, 200*time.Microsecond, 3*time.Millisecond)
	n.latency.most = n.latency.usual
	n.SetDelay(n.latency.draw)
	n.SetClockRate(clockRate(random, 0.005))
	n.StepClock(clockError(random))
	if n.durable = oneIn(random, 3); n.durable {
		n.SetDurable(true)
	}
	if w.turns != nil {
		n.OnPublish(func(_, message string) { w.turns.published(n, message) })
	}
	n.OnReply(func(c redlock.Command, reply redlock.Reply) { w.executed(n, c, reply) })
	if w.tracer != nil {
		n.SetDelay(w.tracedDelay(random))
		n.SetClockRate(1)
	}
	if w.plan.Sim != nil {
		w.plan.Sim(n.Sim)
	}
	return n
}

// clockRate returns the rate of a clock that is wrong by at most so much. The rates of nodes and
// hosts together stay within the drift allowance of 1 %.
func clockRate(random *rand.Rand, most float64) float64 {
	return 1 + most*pick(random, -1, 1, 2*random.Float64()-1)
}

// clockError returns the error of a clock that is not stepped.
func clockError(random *rand.Rand) time.Duration {
	most := pick(random, 10*time.Millisecond, 800*time.Millisecond, maxClockError)
	return between(random, -most, most)
}

const maxClockError = 3 * time.Second

// latency is how long requests and replies take.
type latency struct {
	usual time.Duration

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	most   time.Duration
	more   time.Duration // added by the link
	exact  *exactDelay   // of the link; nil: delays are random
}

func (l *latency) draw() (request, reply time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exact != nil {
		return l.exact.request, l.exact.reply
	}
	most := l.most + l.more
	return between(l.random, most/4, most), between(l.random, most/4, most)
}

// from sets the link of the next delays, which may be slower. Each link has its own random source,
// so the order of calls at one instant does not matter.
func (l *latency) from(link *link, random *rand.Rand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.random, l.more, l.exact = random, time.Duration(link.slower.Load()), link.exact.Load()
}

func (l *latency) set(most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
}

// host is a machine with its own clock and a daemon that may be down.
type host struct {
	w      *world
	index  int
	name   string
	rate   float64
	offset time.Duration // of the host's BootTime
	links  []*link       // to each node

	mu      sync.Mutex // guards what follows
	jitters map[string]*rand.Rand
	walls   []wallError     // in order of time
	q       *redlock.Quorum // nil: the daemon is down
	life    int             // how often the daemon was started

	table *table // nil: a daemon loses its leases when it ends
}

func (w *world) newHost(i int) *host {
	random := w.plan.stream(streamHost + i)
	h := &host{w: w, index: i, name: fmt.Sprintf("h%d", i+1), jitters: map[string]*rand.Rand{}}
	h.rate, h.offset = clockRate(random, 0.003), between(random, time.Minute, time.Hour)
	h.setWall(clockError(random))
	if w.tracer != nil {
		h.rate = 1
	}
	if w.plan.Restarts {
		h.table = newTable(h)
	}
	for _, n := range w.nodes {
		h.links = append(h.links, &link{
			node: n, now: w.record.now, random: w.plan.stream(streamLink + i<<16 + n.index), listenerRandom: w.plan.stream(streamListener + i<<16 + n.index),
		})
	}
	return h
}

// clock returns the BootTime of the host. instant does the reverse.
func (h *host) clock() time.Duration {
	return h.offset + time.Duration(float64(h.w.record.now())*h.rate)
}

func (h *host) instant(boot time.Duration) time.Duration {
	return time.Duration(float64(boot-h.offset) / h.rate)
}

// wallClock returns the time of day by the host's clock.
func (h *host) wallClock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.walls[len(h.walls)-1].wrong)
}

// wallError is the error of a wall clock since an instant.
type wallError struct{ from, wrong time.Duration }

func (h *host) setWall(wrong time.Duration) {
	now := h.w.record.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.walls = append(h.walls, wallError{now, wrong})
}

// sinceBegin returns the instant at which the host's wall clock showed the given time.
func (h *host) sinceBegin(shown time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, wall := range slices.Backward(h.walls) {
		at := shown.Add(-wall.wrong).Sub(h.w.record.begin)
		if at+time.Millisecond >= wall.from && (i+1 == len(h.walls) || at < h.walls[i+1].from) {
			return at
		}
	}
	return never
}

// jitter uses a random source for each caller, because timers of the same instant fire in any
// order.
func (h *host) jitter(caller string, n time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jitters[caller] == nil {
		hash := fnv.New32a()
		hash.Write([]byte(caller))
		h.jitters[caller] = h.w.plan.stream(streamJitter + h.index<<32 + int(hash.Sum32()))
	}
	return time.Duration(h.jitters[caller].Int64N(int64(n)))
}

// start starts the daemon.
func (h *host) start() {
	q, err := redlock.New(h.options())
	if err != nil {
		panic(err) // a bug of the simulation
	}
	if h.table != nil {
		h.table.restore(q)
	}
	h.mu.Lock()
	h.q = q
	h.life++
	life := h.life
	h.mu.Unlock()
	if h.table != nil {
		h.table.resumeKept(life)
	}
}

func (h *host) options() redlock.Options {
	o := redlock.Options{
		Prefix:       redlock.DefaultPrefix,
		NodeTimeout:  nodeTimeout,
		MaxTTL:       simulatedMaxTTL,
		Clock:        h.clock,
		NoQuarantine: !h.w.quarantines,
		Wall:         h.wallClock,
		Notice:       func(n redlock.Notice) { h.w.record.notice(h, n) },
		TokenChanges: h.tokenChanges,
	}
	if h.table != nil {
		o.DeadlineChanged, o.DeadlinesMovedBack = h.table.moved, h.table.movedBack
	}
	for _, l := range h.links {
		o.Nodes = append(o.Nodes, l.redlockNode())
	}
	if h.w.plan.Options != nil {
		h.w.plan.Options(&o, h.jitter)
	}
	return o
}

// crash ends the daemon, which releases nothing and notifies nobody. It returns false if the daemon
// is down already.
func (h *host) crash() bool {
	if h.isDown() {
		return false
	}
	h.w.record.crashed(h)
	h.end()
	return true
}

// end ends the daemon, unless it is down.
func (h *host) end() {
	h.mu.Lock()
	q := h.q
	h.q = nil
	h.mu.Unlock()
	if q == nil {
		return
	}
	if q.Close(); h.table != nil {
		h.table.end()
	}
}

func (h *host) isDown() bool {
	q, _ := h.daemon()
	return q == nil
}

// startAndWait starts the daemon and waits until it may count the votes of all nodes.
func (h *host) startAndWait() {
	h.start()
	for q, _ := h.daemon(); q.Status().Ready < len(h.w.nodes); {
		time.Sleep(time.Millisecond + 11)
	}
}

// daemon returns the running daemon, or nil, and how often it was started.
func (h *host) daemon() (q *redlock.Quorum, life int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.q, h.life
}

// mustGet acquires a lock that must be free, and releases it.
func (h *host) mustGet(ctx context.Context, lock string) {
	q, life := h.daemon()
	l, g := h.w.take(ctx, q, h, life, redlock.Request{Name: lock, TTL: finalTTL, Wait: finalWait})
	if l == nil {
		return
	}
	g.releasing()
	_ = l.Release(ctx) // lookAtNodes checks what remains of it
}

const (
	finalTTL  = time.Second
	finalWait = 500 * time.Millisecond
)

// exactDelay is how long requests and replies on a link take.
type exactDelay struct{ request, reply time.Duration }

// setDelays sets how long requests and replies of the host take from now on.
func (h *host) setDelays(request, reply time.Duration) {
	for _, l := range h.links {
		l.exact.Store(&exactDelay{request, reply})
	}
}

// link is the network between one host and one node. It may lose all messages in one direction.
type link struct {
	node           *simNode
	random         *rand.Rand // of the lane's goroutine
	listenerRandom *rand.Rand // of the listener's goroutine

	losesRequests, losesReplies atomic.Bool
	losesCalls                  atomic.Bool  // of waiters
	slower                      atomic.Int64 // time.Duration
	exact                       atomic.Pointer[exactDelay]

	now         func() time.Duration
	connectedAt atomic.Int64 // time.Duration, when the lane got its connection; or notConnected
}

func (l *link) redlockNode() redlock.Node {
	node := l.node.Node()
	node.Durable = l.node.durable
	dial := node.Dial
	node.Dial = func(ctx context.Context) (redlock.Conn, error) {
		if l.losesRequests.Load() || l.losesReplies.Load() {
			return nil, loseMessage(ctx)
		}
		l.node.latency.from(l, l.random)
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		l.connectedAt.Store(int64(l.now()))
		return &linkConn{Conn: conn, link: l}, nil
	}
	listen := node.Listen
	node.Listen = func(ctx context.Context, channel string, heard func(string)) (redlock.Listener, error) {
		if l.losesRequests.Load() || l.losesReplies.Load() {
			return nil, loseMessage(ctx)
		}
		l.node.latency.from(l, l.listenerRandom)
		return listen(ctx, channel, func(message string) {
			if !l.losesReplies.Load() && !l.losesCalls.Load() {
				heard(message)
			}
		})
	}
	return node
}

// notConnected is connectedAt of a link without a connection: a lane waits before it connects again.
const notConnected = -1

// connectedSince returns since when the lane has its connection; now, if it has none.
func (l *link) connectedSince(now time.Duration) time.Duration {
	if at := l.connectedAt.Load(); at != notConnected {
		return time.Duration(at)
	}
	return now
}

// loseMessage waits until the network should have connected, as the sender of a lost message does.
func loseMessage(ctx context.Context) error {
	ctx, cancel := redis.Connecting(ctx)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

// linkConn is a connection over a link. After it has lost a request or a reply, it loses everything
// that follows, as TCP does.
type linkConn struct {
	redlock.Conn
	link *link

	mu   sync.Mutex // guards what follows; not held during any call
	sent int        // groups that were sent, and not received yet
	lost int        // how many of these, counted from the last, were lost
}

func (c *linkConn) Do(ctx context.Context, group []redlock.Command, replies []redlock.Reply) error {
	if c.link.losesRequests.Load() {
		return loseMessage(ctx)
	}
	c.link.node.latency.from(c.link, c.link.random)
	if err := c.Conn.Do(ctx, group, replies); err != nil {
		return err
	}
	if c.link.losesReplies.Load() {
		return loseMessage(ctx)
	}
	return nil
}

func (c *linkConn) Send(ctx context.Context, group []redlock.Command) error {
	if c.noteSent() {
		return nil
	}
	c.link.node.latency.from(c.link, c.link.random)
	return c.Conn.Send(ctx, group)
}

func (c *linkConn) Close() {
	c.link.connectedAt.Store(notConnected)
	c.Conn.Close()
}

// noteSent counts a group, and reports whether it is lost.
func (c *linkConn) noteSent() (lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	if c.lost == 0 && !c.link.losesRequests.Load() {
		return false
	}
	c.lost++
	return true
}

func (c *linkConn) Receive(ctx context.Context, replies []redlock.Reply) error {
	if c.noteReceived() {
		return loseMessage(ctx)
	}
	if err := c.Conn.Receive(ctx, replies); err != nil {
		return err
	}
	if c.link.losesReplies.Load() {
		return loseMessage(ctx)
	}
	return nil
}

// noteReceived counts a group, and reports whether it was lost.
func (c *linkConn) noteReceived() (lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent--
	return c.sent < c.lost
}
