package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Request says which lock is wanted and how.
type Request struct {
	Name string
	TTL  time.Duration // how long the lease lasts unless extended; MinTTL to Options.MaxTTL

	// Wait is how long new attempts are begun. 0: one attempt only. Forever:
	// until it is granted or ctx is done.
	Wait time.Duration

	// Dry is how long before this call no quorum could vote already: it counts
	// as if this Acquire had met that.
	Dry time.Duration

	// Enough, once closed, lets no new attempt begin, as if Wait were over; the
	// one under way is finished. Nil: only Wait and ctx end an Acquire.
	Enough <-chan struct{}

	// Failed is told of every attempt that failed. It must not block. May be nil.
	Failed func(error)

	// Keep: the lease is extended until it is released or lost. Otherwise it
	// ends after TTL.
	Keep bool

	// Guard is how long before the deadline the loss of the lease is told.
	// 0: TTL/5.
	Guard time.Duration

	// Max bounds the total holding time of a lease that is kept: the bound on
	// re-acquisitions that Redlock's authors ask for. 0: no bound.
	Max time.Duration

	// Holder is what others are told of the holder. Since is set by Acquire.
	Holder Holder

	// OnLost is called once if the lease is lost, on a goroutine of the
	// library's, at the instant at which Lost is closed. It must not block.
	OnLost func(*Lease)
}

// Forever is a Wait without end.
const Forever time.Duration = -1

// Guards are bounded so that a lease is not lost in the moment it is granted.
const (
	guardShare    = 5 // of the ttl, by default
	maxGuardShare = 2
)

// ErrRequest: the request itself is wrong, whatever the nodes say.
var ErrRequest = errors.New("bad request")

func (q *Quorum) check(r *Request) error {
	if r.Max != 0 {
		r.TTL = min(r.TTL, max(r.Max, MinTTL)) // nothing is kept on the nodes for longer than that
	}
	switch {
	case r.Name == "":
		return fmt.Errorf("redlock: %w: the lock has no name", ErrRequest)
	case q.options.Prefix+r.Name == nodeKey:
		return fmt.Errorf("redlock: %w: %s is the nodes' own", ErrRequest, nodeKey)
	case r.TTL < MinTTL || r.TTL > q.options.MaxTTL:
		return fmt.Errorf("redlock: %w: ttl %v of %s: must be between %v and %v", ErrRequest, r.TTL, r.Name, MinTTL, q.options.MaxTTL)
	case r.Guard < 0 || r.Guard > r.TTL/maxGuardShare:
		return fmt.Errorf("redlock: %w: guard %v of %s: must be between 0 and half of the ttl, %v", ErrRequest, r.Guard, r.Name, r.TTL/maxGuardShare)
	case r.Max != 0 && r.Max < MinTTL:
		return fmt.Errorf("redlock: %w: max %v of %s: at least %v, or 0 for no bound", ErrRequest, r.Max, r.Name, MinTTL)
	}
	r.TTL = r.TTL.Truncate(time.Millisecond) // what the nodes are told
	return nil
}

// Acquire locks a name on a quorum of nodes, retrying until granted, until
// r.Wait is over, or ctx is done. The error matches ErrHeld or ErrNoQuorum,
// whichever the last attempt met; ErrRequest; or the cause of ctx's end. Where
// no quorum could vote for a whole ttl, it gives up with ErrNoQuorum. Nothing
// is left on any node when it fails: what an attempt may have set is released
// in the background, repeatedly if need be.
func (q *Quorum) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if err := q.check(&r); err != nil {
		return nil, err
	}
	var patience *patience
	for ctx.Err() == nil {
		start := q.clock() // before the first byte
		lease, err := q.attempt(ctx, &r, start)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			break
		}
		if r.Failed != nil {
			r.Failed(err)
		}
		if patience == nil {
			patience = q.newPatience(&r, start)
		}
		delay, again := patience.next(err, q.clock())
		if !again || isEnough(ctx, r.Enough, delay) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: given up: %w", r.Name, context.Cause(ctx))
}

// isEnough waits for delay, and tells whether the caller has had enough before
// it was over.
func isEnough(ctx context.Context, enough <-chan struct{}, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-enough:
		return true
	}
	return false
}

// attempt is one ballot with a token of its own, and a second one where the
// nodes do not agree on the fencing token yet. Not granted: released on every
// node, also on those that refused, failed or never answered.
func (q *Quorum) attempt(ctx context.Context, r *Request, start time.Duration) (*Lease, error) {
	r.Holder.Since = q.options.Wall()
	missed := q.jumps.totalMissed()
	b := q.newBallot("acquire", isFencedGrant)
	key := q.options.Prefix + r.Name
	g := grant{placed: &nodeSet{}, operation: operation{
		letter: opAcquire, key: key, token: q.rules.token(r.Holder), ttl: r.TTL,
		counter: counterOf(key), fence: q.propose(r.Holder.Since),
	}}
	q.call(call{op: b.op, ops: b.ask(g.operation), notAfter: q.rules.notAfter(start, q.options.NodeTimeout), placed: g.placed, voter: b}, start)
	b.wait(ctx, q.options.NodeTimeout, q.lanes)
	now := q.clock()
	g.deadline = q.rules.start(start, now) + r.TTL - q.rules.drift(r.TTL)
	if q.wins(ctx, b, now, g.deadline) {
		b = q.agree(ctx, b, &g)
		now = q.clock()
	}
	g.deadline -= q.jumps.totalMissed() - missed // this host's clock stood still meanwhile
	if q.wins(ctx, b, now, g.deadline) {
		q.counts.grants.Add(1)
		return q.keeper.grant(r, &g, now), nil
	}
	q.abandon(key, g.token, g.placed)
	return nil, q.refusal(r.Name, b)
}

// wins tells whether a ballot was won in time, and somebody wants it still.
func (q *Quorum) wins(ctx context.Context, b *ballot, now, deadline time.Duration) bool {
	return b.won() && q.rules.inTime(now, deadline) && ctx.Err() == nil
}

// grant is what an attempt that was won is granted.
type grant struct {
	operation // the acquire; fence is the fencing token
	placed    *nodeSet
	deadline  time.Duration
}

// agree has a quorum of nodes hold the lock together with a counter that is not
// below the fencing token: the largest that a granting node gave. Where a quorum
// gave that very one, they do. Otherwise it is written back, and a node counts
// only if the lock is still ours there: without that two attempts could be
// granted the same token. Returns the ballot that decides.
func (q *Quorum) agree(ctx context.Context, b *ballot, g *grant) *ballot {
	fence, nodes := b.fence()
	g.fence = fence
	if q.rules.agreed(nodes, q.quorum) {
		return b
	}
	q.counts.writeBacks.Add(1)
	back := q.newBallot("fence", isGrant)
	ops := back.ask(operation{letter: opFence, key: g.key, token: g.token, counter: g.counter, fence: fence})
	q.call(call{op: back.op, ops: ops, voter: back}, q.clock())
	back.wait(ctx, q.options.NodeTimeout, q.lanes)
	return back
}

// propose returns a fencing token to propose: the wall clock in microseconds,
// and never the same twice. It need not be right: a node whose counter is larger
// gives a larger one.
func (q *Quorum) propose(now time.Time) uint64 {
	wish := uint64(max(now.UnixMicro(), 1))
	for {
		last := q.proposed.Load()
		next := min(max(wish, last+1), maxFence)
		if q.proposed.CompareAndSwap(last, next) {
			return next
		}
	}
}

// drift is how much sooner a lease ends here than on the nodes, for clocks
// that do not run at quite the same rate: 1 % and 2 ms, for the resolution of
// expiries in Redis ("Distributed locks", redis.io; the reference
// implementations of Redlock have the same).
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

func isGrant(reply *Reply) bool { return reply.Int == 1 }

// isFencedGrant: the answer to an acquire that was granted is the fencing token
// that the node gives.
func isFencedGrant(reply *Reply) bool { return isFence(uint64(reply.Int)) }

// abandon releases a token on all nodes and does not wait for them: the lanes
// repeat what stays unanswered. It needs no context that could end.
func (q *Quorum) abandon(key, token string, placed *nodeSet) {
	now := q.clock()
	q.call(q.releaseCall(key, token, placed, nil, now), now)
}

// releaseCall is owed for max_ttl: no key that was set or extended before now
// lasts longer.
func (q *Quorum) releaseCall(key, token string, placed *nodeSet, b *ballot, now time.Duration) call {
	c := call{
		op:     "release",
		until:  now + q.options.MaxTTL + drift(q.options.MaxTTL),
		placed: placed,
	}
	release := operation{letter: opRelease, key: key, token: token}
	if b == nil {
		c.ops = []operation{release}
		return c
	}
	c.ops, c.voter = b.ask(release), b
	return c
}

// refusal says why a ballot was not won.
func (q *Quorum) refusal(name string, b *ballot) error {
	switch {
	case b.lacksQuorum():
		return q.noQuorum(name, b)
	case b.won():
		e := q.noQuorum(name, b)
		e.Failed = append(e.Failed, tooLate(b.op))
		return e
	case b.op == "fence":
		e := q.noQuorum(name, b)
		e.Failed = append(e.Failed, goneAgain(b.refused))
		return e
	}
	return heldBy(name, b)
}

// goneAgain is said of an attempt whose lock went away while its fencing token
// was written back.
func goneAgain(nodes int) *NodeError {
	return &NodeError{Node: "this attempt", Op: "fence", Failure: FailedLate,
		Err: fmt.Errorf("the lock was gone again on %d nodes (expired, deleted or flushed) before its fencing token was written", nodes)}
}

// tooLate is said of a ballot that was won when its validity was over.
func tooLate(op string) *NodeError {
	return &NodeError{Node: "this host", Op: op, Failure: FailedLate,
		Err: errors.New("the answers came when the lease would have been over already")}
}

func (q *Quorum) noQuorum(name string, b *ballot) *NoQuorumError {
	b.noteUnreachable(q.lanes)
	e := &NoQuorumError{
		Name:    name,
		Granted: b.granted,
		Needed:  b.quorum,
		Failed:  b.failures(),
		Retry:   q.options.NodeTimeout,
	}
	if e.Quarantine = q.quarantineLeft(e.Failed); e.Quarantine > 0 {
		e.Retry = e.Quarantine
	}
	return e
}

// quarantineLeft is how long it takes until a quorum can vote where quarantines
// are all that is in the way; 0 where something else is.
func (q *Quorum) quarantineLeft(failures []*NodeError) time.Duration {
	var left []time.Duration
	for _, failure := range failures {
		if failure.Failure != FailedQuarantined {
			continue
		}
		e := (*QuarantineError)(nil)
		switch {
		case errors.As(failure.Err, &e):
			left = append(left, max(e.Left, time.Millisecond))
		case isServerError(failure.Err): // it has only just said so
			left = append(left, q.longestTTL())
		} // else it waits for more than time
	}
	able := len(q.lanes) - len(failures)
	return untilQuorum(left, q.quorum-able)
}

// heldBy names the holder that most nodes showed, and how long its lease lasts
// where it lasts longest.
func heldBy(name string, b *ballot) *HeldError {
	e := &HeldError{Name: name}
	if shown := tally(b.answers); len(shown) > 0 && 2*shown[0].Held > b.refused {
		e.Holder, e.TTL = shown[0].Holder, shown[0].TTL
	}
	return e
}

// patience spaces attempts and ends them: at random, so that contenders do not
// meet again and again; growing, so that a long wait costs little; and never
// past the instant at which the lock may be free.
type patience struct {
	jitter func(n time.Duration) time.Duration
	until  time.Duration // no attempt is begun later; negative: no end
	ttl    time.Duration
	voted  time.Duration // when a quorum voted last, or the start
	limit  time.Duration // of the next delay
}

const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 250 * time.Millisecond
)

func (q *Quorum) newPatience(r *Request, now time.Duration) *patience {
	p := &patience{until: now + r.Wait, ttl: r.TTL, voted: now - r.Dry, limit: firstRetry}
	p.jitter = func(n time.Duration) time.Duration { return q.rules.jitter(r.Name, n) }
	if r.Wait < 0 {
		p.until = -1
	}
	return p
}

// isQuarantine tells an error that time alone mends: whoever waits rides it out.
func isQuarantine(err error) bool {
	var e *NoQuorumError
	return errors.As(err, &e) && e.Quarantine > 0
}

// next says how long to wait before the next attempt, or that there is none.
func (p *patience) next(err error, now time.Duration) (delay time.Duration, again bool) {
	if errors.Is(err, ErrHeld) || isQuarantine(err) {
		p.voted = now
	}
	if p.until >= 0 && now >= p.until || now-p.voted >= p.ttl {
		return 0, false
	}
	delay = p.limit/4 + p.jitter(3*p.limit/4)
	p.limit = min(2*p.limit, lastRetry)
	var held *HeldError
	if errors.As(err, &held) && held.TTL > 0 && held.TTL != Endless {
		delay = min(delay, held.TTL+time.Millisecond)
	}
	if p.until >= 0 {
		delay = min(delay, p.until-now)
	}
	return delay, true
}
