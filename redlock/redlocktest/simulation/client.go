package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// simClient is a client on a host. It acquires and releases locks, and may pause at any point.
type simClient struct {
	w      *world
	host   *host
	name   string
	random *rand.Rand
	streak streak
	ctx    context.Context // outlives the work, so that the client releases its lock
}

func (w *world) startClients(ctx context.Context) {
	for i := range w.clientCount {
		h := w.hosts[i%len(w.hosts)]
		c := &simClient{w: w, host: h, ctx: ctx, random: w.plan.stream(streamClient + i)}
		c.name = fmt.Sprintf("%s.%d", h.name, i/len(w.hosts)+1)
		w.clients.Go(c.run)
	}
}

func (c *simClient) run() {
	for c.w.work.Err() == nil {
		time.Sleep(below(c.random, c.w.idle))
		if q, life := c.host.daemon(); q != nil {
			if !c.useLock(q, life) {
				time.Sleep(below(c.random, 3*c.w.idle)) // it need not hurry
			}
		}
	}
}

// useLock acquires a lock, uses it and releases it. It returns false if it could not acquire one.
func (c *simClient) useLock(q *redlock.Quorum, life int) bool {
	r := c.newRequest()
	c.streak = streak{}
	for next, record := &r, c.begin(&r, life); next != nil; {
		lease, g := c.acquire(q, *next, record)
		if g == nil {
			return next != &r
		}
		c.use(lease, g, *next)
		if lease, q, life = c.host.afterRestart(lease, g, life); lease == nil {
			return true
		}
		if c.keepTaken(lease, g, life) {
			return true
		}
		if next, record = c.handOver(lease, g, life); next == nil {
			c.release(lease, g, life)
		}
	}
	return true
}

// begin records that the client is about to call Acquire.
func (c *simClient) begin(r *redlock.Request, life int) *Request {
	record := c.w.record.request(c.host, life, c.name, r)
	record.MinHeld = c.minHeld(r)
	r.Holder, r.Failed, r.OnLost = record.holder(), record.failed, record.lost
	t := c.host.table
	r.BeforeAttempt = func(token redlock.Record) {
		if t != nil {
			t.recordAttempt(token)
		}
		if token.Grant != "" {
			record.passed(token)
		}
	}
	if t != nil {
		r.OnLost = func(l *redlock.Lease) { t.lost(l.ID()); record.lost(l) }
	}
	return record
}

func (c *simClient) acquire(q *redlock.Quorum, r redlock.Request, record *Request) (*redlock.Lease, *Grant) {
	ctx, cancel := c.newContext()
	defer cancel()
	lease, err := q.Acquire(ctx, r)
	if t := c.host.table; err == nil && t != nil && !t.granted(lease, record) {
		err = errKilled
	}
	if err != nil {
		record.ended(err)
		return nil, nil
	}
	g := record.granted(lease)
	if t := c.host.table; t != nil {
		t.recordGrant(g)
	}
	c.w.lookAtGrant(g)
	return lease, g
}

// handOver sometimes hands the lock over to the next client of this host. This simClient then acts
// as that client. It returns nil if it does not hand over, or if the lock is gone.
func (c *simClient) handOver(lease *redlock.Lease, g *Grant, life int) (next *redlock.Request, record *Request) {
	passes := g.block > 1 && !oneIn(c.random, 6)
	if q, now := c.host.daemon(); g.Kind != "" || g.Shares != never || q == nil || now != life || !passes && !oneIn(c.random, 3) || c.streak.next(c.host, lease) {
		return nil, nil
	}
	r := c.newRequest()
	r.Name, r.Names, r.Shared, r.Slots = "", g.Locks, false, 0
	gone := make(chan struct{})
	if passes {
		r.TTL, r.Keep, r.Guard, r.Block = min(g.TTL, lease.TTL()), true, 0, c.block()
		r.StopRetrying = gone
	}
	record = c.begin(&r, life)
	c.releasing(g)
	_, pending, err := lease.HandOver(r)
	g.event("hand over", fmt.Sprintf("to request %d: %v", record.N, err))
	if err != nil {
		record.ended(err)
		return nil, nil
	}
	c.w.record.count("hand-over")
	switch {
	case !passes:
	case oneIn(c.random, 10): // the next client's goroutine is late
		time.Sleep(below(c.random, pick(c.random, 150*time.Millisecond, 150*time.Millisecond, 500*time.Millisecond)))
	case oneIn(c.random, 15):
		c.forcePending(g)
	case oneIn(c.random, 20):
		c.w.record.count("pass abandoned")
		record.clientEnded()
		close(gone)
		time.Sleep(below(c.random, 20*time.Millisecond))
	}
	if oneIn(c.random, 8) {
		pending.Abandon()
		record.ended(errAbandoned)
		return &r, c.begin(&r, life)
	}
	r.Pending = pending
	return &r, record
}

// forcePending makes another host send FORCE before the next client is granted the lock, and gives
// other clients time to acquire it.
func (c *simClient) forcePending(g *Grant) {
	h := c.w.hosts[(c.host.index+1)%len(c.w.hosts)]
	if q, _ := h.daemon(); q != nil {
		o := &operator{w: c.w}
		o.force(c.ctx, h, q, g.Locks[0])
	}
	time.Sleep(below(c.random, 200*time.Millisecond))
}

var (
	errAbandoned = errors.New("abandoned")
	errKilled    = errors.New("its daemon was killed before it could reply")
)

// releasing records that the client is about to release the lock in some way.
func (c *simClient) releasing(g *Grant) {
	g.releasing()
	if t := c.host.table; t != nil {
		t.released(g)
		if c.w.plan.Table == RecordPassLate {
			t.keep(g.lease, g)
		}
		if oneIn(c.random, 4) { // the daemon sends the release late, and may be killed first
			time.Sleep(below(c.random, 200*time.Millisecond))
		}
	}
}

// newRequest returns a request for a random lock.
func (c *simClient) newRequest() redlock.Request {
	r := c.newExclusive()
	switch c.random.IntN(12) {
	case 0, 1, 2, 3:
		r.Shared = true
	case 4, 5, 6:
		r.Slots = 3
	case 7:
		r.Slots = 5
	case 8:
		if len(c.w.locks) > 1 {
			r.Name, r.Names = "", slices.Clone(c.w.locks)
		}
	}
	r.Held, r.Yield = oneIn(c.random, 8), oneIn(c.random, 8)
	if !r.Shared && r.Slots == 0 {
		r.Block = c.block()
	}
	return r
}

// block returns how many fencing tokens the client reserves.
func (c *simClient) block() int { return pick(c.random, 0, 2, 4, 64) }

// newExclusive returns a request for one lock that is not shared.
func (c *simClient) newExclusive() redlock.Request {
	r := redlock.Request{
		Name: pick(c.random, c.w.locks...),
		TTL:  pick(c.random, redlock.MinTTL, below(c.random, time.Second)+redlock.MinTTL, simulatedMaxTTL),
		Wait: below(c.random, pick[time.Duration](c.random, 20, 100, 400, 1500)*time.Millisecond),
		Keep: !oneIn(c.random, 3),
	}
	switch c.random.IntN(8) {
	case 0:
		r.Guard = between(c.random, r.TTL/20, r.TTL/2)
	case 1:
		r.Max = redlock.MinTTL + below(c.random, 2*time.Second)
	case 2:
		r.Wait = 0
	}
	return r
}

// newContext returns a context that may end at any time, and that sometimes pauses the client.
func (c *simClient) newContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	if oneIn(c.random, 4) {
		timer := time.AfterFunc(below(c.random, pick[time.Duration](c.random, 5, 50, 500)*time.Millisecond), func() {
			c.w.record.count("cancellation")
			cancel()
		})
		return c.pausing(ctx), func() { timer.Stop(); cancel() }
	}
	return c.pausing(ctx), cancel
}

// use holds the lock for a while, watches it, and extends it sometimes.
func (c *simClient) use(lease *redlock.Lease, g *Grant, r redlock.Request) {
	if c.w.plan.Exchanges && lease.Passed() && !oneIn(c.random, 4) {
		c.useExchanged(g, lease)
		return
	}
	if r.Block > 1 && !oneIn(c.random, 4) { // as most clients of a lock that is passed on
		time.Sleep(below(c.random, 30*time.Millisecond))
		return
	}
	for end := c.w.record.now() + c.useTime(r.TTL); c.w.record.now() < end; {
		c.pause()
		select {
		case <-lease.Lost():
			return
		case <-c.w.work.Done():
			return
		case <-time.After(below(c.random, r.TTL/2)):
		}
		if oneIn(c.random, 6) {
			c.extend(lease, g, r)
		}
		if g.Kind == "" && oneIn(c.random, 8) {
			c.downgrade(lease, g)
		}
	}
}

// downgrade makes the lease a shared one, and notes that for the next daemon of the host.
func (c *simClient) downgrade(lease *redlock.Lease, g *Grant) {
	g.shares()
	began := c.w.record.now()
	ctx, cancel := c.newContext()
	defer cancel()
	err := lease.Downgrade(ctx, 0, func() error {
		if q, now := c.host.daemon(); q == nil || now != g.life {
			return errKilled
		}
		g.noted()
		if t := c.host.table; t != nil && c.w.plan.Table != AdoptAsExclusive {
			t.change(g.ID, func(e *row) { e.Shared = true })
		}
		return nil
	})
	g.event("downgrade", fmt.Sprint(err))
	if q, now := c.host.daemon(); err == nil && q != nil && now == g.life {
		c.w.lookAtDowngrade(g, began)
	}
}

// useTime returns how long the client uses a lock: mostly shorter than its ttl.
func (c *simClient) useTime(ttl time.Duration) time.Duration {
	if c.w.busy {
		return below(c.random, 30*time.Millisecond)
	}
	return below(c.random, pick(c.random, ttl/2, ttl/2, ttl+500*time.Millisecond, 2*ttl))
}

func (c *simClient) extend(lease *redlock.Lease, g *Grant, r redlock.Request) {
	ttl := max(redlock.MinTTL, 2*r.Guard)
	if ttl < simulatedMaxTTL {
		ttl = between(c.random, ttl, simulatedMaxTTL)
	}
	ctx, cancel := c.newContext()
	defer cancel()
	g.event("extend", fmt.Sprintf("ttl %v: %v", ttl, lease.Extend(ctx, ttl)))
}

// release ends the use of a lease in one of several ways. If the daemon of the lease has ended, it
// does nothing.
func (c *simClient) release(lease *redlock.Lease, g *Grant, life int) {
	if q, now := c.host.daemon(); q == nil || now != life {
		return
	}
	if oneIn(c.random, 12) {
		g.event("give up", "")
		g.gaveUp()
		if t := c.host.table; t != nil {
			t.lost(g.ID)
		}
		lease.LoseSilently()
		return
	}
	c.releasing(g)
	if oneIn(c.random, 5) {
		_, _ = lease.BeginRelease() // lookAtNodes checks what remains of it
		return
	}
	err := lease.Release(c.pausing(c.ctx))
	g.event("release", fmt.Sprint(err))
}

// pause sometimes stops the client, for longer than a lease may last.
func (c *simClient) pause() {
	if oneIn(c.random, 60) {
		c.w.record.count("pause")
		time.Sleep(below(c.random, pick(c.random, 30*time.Millisecond, 1500*time.Millisecond)))
	}
}

// pausing returns a context that may pause its client. Code that waits for a context and something
// else calls Done first, so Done pauses.
func (c *simClient) pausing(ctx context.Context) context.Context { return pausingContext{ctx, c} }

type pausingContext struct {
	context.Context
	client *simClient
}

func (c pausingContext) Done() <-chan struct{} {
	c.client.pause()
	return c.Context.Done()
}

// foreignToken is the prefix of the values of other Redlock clients.
const foreignToken = "foreign:"

// foreignClient is another implementation of Redlock, which knows only plain keys. It asks the nodes
// one after another, without a network. It shows that its locks and those of redlock exclude each
// other.
type foreignClient struct {
	w      *world
	random *rand.Rand
}

// startForeignClient starts a foreign client if the nodes of the plan keep their data and no clock
// is stepped. A foreign client does not know the quarantine.
func (w *world) startForeignClient() {
	if w.plan.Loss || w.plan.Steps || w.plan.Fresh {
		return
	}
	f := &foreignClient{w: w, random: w.plan.stream(streamForeignClient)}
	w.clients.Go(f.run)
}

func (f *foreignClient) run() {
	for n := 0; f.w.work.Err() == nil; n++ {
		time.Sleep(below(f.random, 400*time.Millisecond))
		f.useLock(pick(f.random, f.w.locks...), foreignToken+strconv.Itoa(n))
	}
}

// useLock tries to acquire a lock once, uses it and releases it.
func (f *foreignClient) useLock(lock, token string) {
	ttl := below(f.random, 500*time.Millisecond) + redlock.MinTTL
	r := redlock.Request{Name: lock, TTL: ttl.Truncate(time.Millisecond)}
	h := f.w.hosts[0]
	q := f.w.record.request(h, 0, "foreign", &r)
	votes := 0
	for _, n := range f.w.nodes {
		if n.grantToForeign(redlock.DefaultPrefix+lock, token, r.TTL) {
			votes++
		}
	}
	if votes <= len(f.w.nodes)/2 {
		f.release(lock, token)
		q.ended(fmt.Errorf("%d votes", votes))
		return
	}
	g := q.grantedToForeign(token, r.TTL-r.TTL/50-2*time.Millisecond)
	f.w.record.count("foreign lock")
	time.Sleep(below(f.random, r.TTL))
	g.releasing()
	f.release(lock, token)
}

func (n *simNode) grantToForeign(key, token string, ttl time.Duration) bool {
	if n.Makes(simredis.HideKind) && simredis.IsKind(n.Get(key)) {
		return true // this mistake leaves the key free, so SET would succeed
	}
	reply := n.Do("SET", key, token, "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
	return reply.Err == nil && !reply.Nil
}

func (f *foreignClient) release(lock, token string) {
	for _, n := range f.w.nodes {
		if n.Get(redlock.DefaultPrefix+lock) == token {
			n.Do("DEL", redlock.DefaultPrefix+lock)
		}
	}
}

// grantedToForeign records that the foreign client holds the lock since it asked for it.
func (q *Request) grantedToForeign(id string, validity time.Duration) *Grant {
	r := q.record
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &Grant{
		Request: q, ID: id, TokenID: id, Began: q.Began, At: r.now(), Nodes: 1, Held: 1,
		Passed: never, Releasing: never, Kept: never, GaveUp: never, Unreported: never,
		Claims: []Claim{{q.Began, r.now(), q.Began + validity}},
	}
	q.Grant = g
	r.report.Grants = append(r.report.Grants, g)
	r.add(g.line("granted", "to another client"))
	return g
}

// operator sends FORCE for locks now and then, whatever client holds them. Only some worlds have
// one.
type operator struct {
	w      *world
	random *rand.Rand
	gap    time.Duration
}

func (w *world) startOperator(ctx context.Context) {
	o := &operator{w: w, random: w.plan.stream(streamOperator)}
	if o.gap = 20 * w.idle; oneIn(o.random, 2) {
		w.clients.Go(func() { o.run(ctx) })
	}
}

func (o *operator) run(ctx context.Context) {
	for o.w.work.Err() == nil {
		time.Sleep(below(o.random, o.gap))
		h := pick(o.random, o.w.hosts...)
		if q, _ := h.daemon(); q != nil {
			o.force(ctx, h, q, pick(o.random, o.w.locks...))
		}
	}
}

// force sends FORCE, and reports whether a holder was revoked.
func (o *operator) force(ctx context.Context, h *host, q *redlock.Quorum, lock string) bool {
	holders, err := q.Force(ctx, lock)
	for _, holding := range holders {
		o.w.record.forceAnswered(holding.ID())
		o.w.record.count("force")
		o.w.record.event(Event{Actor: h.name, What: "forced", Lock: lock, Note: "held by request " + strconv.Itoa(holding.Holder.PID)})
	}
	switch {
	case err == nil:
	case !errors.Is(err, redlock.ErrNotHeld):
		o.w.record.event(Event{Actor: h.name, What: "not forced", Lock: lock, Note: err.Error()})
	}
	return err == nil
}

// useExchanged holds a lock that was passed on until its token is exchanged, and longer. In half of
// the cases another host sends FORCE at about that time.
func (c *simClient) useExchanged(g *Grant, lease *redlock.Lease) {
	wait := below(c.random, 120*time.Millisecond)
	forced := oneIn(c.random, 2)
	time.Sleep(wait)
	if forced {
		c.forcePending(g)
	}
	rest := below(c.random, pick(c.random, 50*time.Millisecond, g.TTL/2, 2*g.TTL))
	select {
	case <-lease.Lost():
	case <-c.w.work.Done():
	case <-time.After(rest):
	}
}
