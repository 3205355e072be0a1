package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// attempt is one ballot with a token of its own. Not granted: released on
// every node, also on those that refused, failed or never answered.
func (q *Quorum) attempt(ctx context.Context, r *Request, start time.Duration) (*Lease, error) {
	r.Holder.Since = time.Now()
	token := q.rules.token(r.Holder)
	placed := &nodeSet{}
	b := q.newBallot("acquire", isGrant)
	key := q.options.Prefix + r.Name
	b.words = [4]string{key, opAcquire, token, strconv.FormatInt(r.TTL.Milliseconds(), 10)}
	q.call(call{
		op:       b.op,
		keys:     b.words[:1],
		args:     b.words[1:],
		notAfter: q.rules.notAfter(start, q.options.NodeTimeout),
		placed:   placed,
		voter:    b,
	}, start)
	b.wait(ctx, q.options.NodeTimeout, q.lanes)
	now := q.clock()
	deadline := q.rules.start(start, now) + r.TTL - q.rules.drift(r.TTL)
	if b.won() && q.rules.inTime(now, deadline) && ctx.Err() == nil {
		return q.keeper.grant(r, key, token, placed, deadline, now), nil
	}
	q.abandon(key, token, placed)
	return nil, q.refusal(r.Name, b)
}

// drift is how much sooner a lease ends here than on the nodes, for clocks
// that do not run at quite the same rate: 1 % and 2 ms, for the resolution of
// expiries in Redis ("Distributed locks", redis.io; the reference
// implementations of Redlock have the same).
func drift(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

func isGrant(reply *Reply) bool { return reply.Int == 1 }

// abandon releases a token on all nodes and does not wait for them: the lanes
// repeat what stays unanswered. It needs no context that could end.
func (q *Quorum) abandon(key, token string, placed *nodeSet) {
	now := q.clock()
	q.call(q.releaseCall(key, token, placed, nil, now), now)
}

// releaseCall is owed for max_ttl: no key that was set or extended before now
// lasts longer.
func (q *Quorum) releaseCall(key, token string, placed *nodeSet, v voter, now time.Duration) call {
	return call{
		op:      "release",
		keys:    []string{key},
		args:    []string{opRelease, token},
		release: token,
		until:   now + q.options.MaxTTL + drift(q.options.MaxTTL),
		placed:  placed,
		voter:   v,
	}
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
	}
	return heldBy(name, b)
}

// tooLate is said of a ballot that was won when its validity was over.
func tooLate(op string) *NodeError {
	return &NodeError{Node: "this host", Op: op, Failure: FailedLate,
		Err: errors.New("the answers came when the lease would have been over already")}
}

func (q *Quorum) noQuorum(name string, b *ballot) *NoQuorumError {
	b.noteUnreachable(q.lanes)
	return &NoQuorumError{
		Name:    name,
		Granted: b.granted,
		Needed:  b.quorum,
		Failed:  b.failures(),
		Retry:   q.options.NodeTimeout,
	}
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
	jitter func(time.Duration) time.Duration
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
	p := &patience{jitter: q.rules.jitter, until: now + r.Wait, ttl: r.TTL, voted: now - r.Dry, limit: firstRetry}
	if r.Wait < 0 {
		p.until = -1
	}
	return p
}

// next says how long to wait before the next attempt, or that there is none.
func (p *patience) next(err error, now time.Duration) (delay time.Duration, again bool) {
	if errors.Is(err, ErrHeld) {
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
