package redlock

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Adoption is what Adopt made of records, in their order.
type Adoption struct {
	Leases []*Lease // nil: refused
	Errs   []error  // why; nil: it was not. They match ErrRecord

	unconfirmed  atomic.Int64  // leases that Wait waits for
	allConfirmed chan struct{} // closed when there are none
}

// Adopt goes on with leases of an earlier process on this host: with the same token,
// fencing token and deadline, and whatever is done with a lease that was granted here
// can be done with them. It does not wait for the nodes. A record that cannot be one
// is refused, and the others are adopted.
//
// One that was lost before (Record.Lost) stays lost, and that is not told again.
//
// Leases that are kept are extended at once, many in one call a node; call Settle before,
// or the first try may come to nothing for want of connections. Each is lost as any other
// one, by its timer: at the recorded deadline less the guard unless a quorum confirmed it
// before. If this instant has passed already, the lease is lost at once, never extended,
// and released on the nodes at its deadline; so is a lease that the nodes refuse to extend.
// lost (may be nil) is what Request.OnLost is, with the index of the record: it is never
// called by Adopt itself, but maybe before Adopt returns.
//
// How long the process was away is counted on BootTime. If the clock itself stopped in that
// time (a virtual machine that was suspended), this process cannot know: the nodes do, and
// their answers to the first extension show it. Until Wait returns, such a lease is only as
// good as this host's clock.
func (q *Quorum) Adopt(records []Record, lost func(i int, l *Lease)) *Adoption {
	a := &Adoption{Leases: make([]*Lease, len(records)), Errs: make([]error, len(records)), allConfirmed: make(chan struct{})}
	a.unconfirmed.Store(1) // until all are counted
	var held []*Lease
	known := map[string]bool{}
	for i := range records {
		l, err := q.adoptable(&records[i], known)
		if err != nil {
			a.Errs[i] = err
			continue
		}
		if lost != nil {
			l.onLost = func(l *Lease) { lost(i, l) }
		}
		a.Leases[i] = l
		if records[i].Lost != "" {
			l.adoptLost(records[i].Lost)
		} else if a.begin(l) {
			held = append(held, l)
		}
	}
	q.keeper.watchAll(held, q.clock())
	a.countConfirmed()
	return a
}

// adoptable makes the lease of a record. It is not watched yet.
func (q *Quorum) adoptable(r *Record, known map[string]bool) (*Lease, error) {
	now := q.clock()
	t, err := q.targetOf(r)
	if err == nil {
		err = q.checkLease(r, now)
	}
	if err == nil && known[r.Token] {
		err = r.bad("its token is that of another one")
	}
	if err != nil {
		return nil, err
	}
	known[r.Token] = true
	q.slots.hold(&t)
	return &Lease{
		keeper:      q.keeper,
		target:      t,
		token:       r.Token,
		fence:       r.Fence,
		maybeOn:     q.anywhere(),
		kept:        r.Keep,
		since:       r.Since,
		end:         r.End,
		guard:       r.Guard,
		ttl:         r.TTL,
		next:        r.Deadline - r.TTL + r.TTL/extendShare, // when the earlier process was to extend it
		deadline:    q.rules.adoptedDeadline(r.Deadline, now, r.TTL),
		onConfirmed: func() {}, // nobody waits for that yet
	}, nil
}

// begin arms the timer that says LOST. It is false where that is due already: such a
// lease must not be extended.
func (a *Adoption) begin(l *Lease) (held bool) {
	now := l.keeper.clock()
	held = now < l.lossDue()
	if held && l.extendable() {
		a.unconfirmed.Add(1)
		l.onConfirmed = sync.OnceFunc(a.countConfirmed)
	}
	l.arm(now)
	return held
}

// adoptLost makes it a lease that was lost before: that is not reported again, and it is
// released at its deadline like other lost leases.
func (l *Lease) adoptLost(reason LostReason) {
	now := l.keeper.clock()
	l.state, l.reason, l.forgotten = lost, reason, true // nobody else knows it yet
	l.releaseAt = l.keeper.rules.releaseAt(now, l.deadline)
	l.mu.Lock() // the timer may ring at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.releaseAt-now, l.onTimer)
}

// countConfirmed counts a lease that a quorum confirmed, or that is over.
func (a *Adoption) countConfirmed() {
	if a.unconfirmed.Add(-1) == 0 {
		close(a.allConfirmed)
	}
}

// Wait waits until each of the leases that are kept was confirmed by a quorum once, or
// is over: Lease.Err says which. Or until ctx is done: it returns the cause then.
func (a *Adoption) Wait(ctx context.Context) error {
	select {
	case <-a.allConfirmed:
		return nil
	default:
	}
	select {
	case <-a.allConfirmed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leases of before are not all confirmed: %w", context.Cause(ctx))
	}
}

// Abandon releases what an earlier process on this host may have taken: the token of an
// attempt or of a release that was under way when it ended. Of a lease that was lost, it
// is for after the deadline: its holder may still be stopping. It does not wait for the
// nodes; the lanes repeat what stays unanswered. And all is released again a little
// later: what the earlier process had sent may be executed until then, for nobody
// knows its connections. The error matches ErrRecord: nothing is released then.
func (q *Quorum) Abandon(r Record) error {
	t, err := q.targetOf(&r)
	if err != nil {
		return err
	}
	t.slot = 0 // of the place, nothing is reserved here
	release := func() { q.abandon(&t, r.Token, q.anywhere()) }
	release()
	time.AfterFunc(node.SilenceLimit(q.options.NodeTimeout), release)
	return nil
}

// anywhere is where a token may be that an earlier process had.
func (q *Quorum) anywhere() *node.NodeSet {
	placed := &node.NodeSet{}
	for i := range q.lanes {
		placed.Add(i)
	}
	return placed
}

// request is what was asked for, as far as it says which lock.
func (r *Record) request() Request {
	return Request{Names: r.Names, Shared: r.Shared, Slots: r.Slots}
}

// targetOf is what a record is of. An error matches ErrRecord: there is no such lock,
// or nobody can have that token of it.
func (q *Quorum) targetOf(r *Record) (target, error) {
	wish := r.request()
	if err := q.checkLock(&wish); err != nil {
		return target{}, r.bad("%v", err)
	}
	place, token := splitMember(r.Token)
	switch {
	case r.Slots == 1 || r.Slot < 0 || r.Slot > r.Slots || (r.Slot == 0) != (r.Slots == 0):
		return target{}, r.bad("place %d of %d", r.Slot, r.Slots)
	case place != r.Slot:
		return target{}, r.bad("its token is of place %d, and it of %d", place, r.Slot)
	case !isToken(token):
		return target{}, r.bad("its token is none of this program's")
	}
	t := q.target(&wish)
	t.slot = int32(r.Slot)
	return t, nil
}

// checkLease checks what is granted, against the time now. The error matches
// ErrRecord, and says which lock, and what.
func (q *Quorum) checkLease(r *Record, now time.Duration) error {
	longest := q.options.MaxTTL
	switch {
	case r.TTL < MinTTL || r.TTL > longest:
		return r.bad("ttl %v: must be between %v and the max_ttl of now, %v; its lock is free when it has expired on the nodes", r.TTL, MinTTL, longest)
	case r.TTL%time.Millisecond != 0:
		return r.bad("ttl %v: not whole milliseconds", r.TTL)
	case r.Guard < 0 || r.Guard > r.TTL/maxGuardShare:
		return r.bad("guard %v: must be between 0 and half of the ttl, %v", r.Guard, r.TTL/maxGuardShare)
	case !script.IsFence(r.Fence):
		return r.bad("fencing token %d: must be between 1 and %d", r.Fence, uint64(script.MaxFence))
	case r.Since <= 0 || r.Since > now:
		return r.bad("granted at %v, and this host was booted %v ago: of another boot?", r.Since, now)
	case r.Deadline <= 0 || r.Deadline > now+longest: // a ttl that was made shorter leaves a deadline where it was
		return r.bad("deadline %v from now: more than the max_ttl of %v", r.Deadline-now, longest)
	case r.End != 0 && (r.End <= r.Since || r.Deadline > r.End):
		return r.bad("to be held from %v until %v at most, and its deadline is %v", r.Since, r.End, r.Deadline)
	}
	return nil
}

// isToken tells whether newToken can have returned it.
func isToken(token string) bool {
	if !holderOf(token).Known() || !utf8.ValidString(token) {
		return false
	}
	if _, err := base64.RawURLEncoding.DecodeString(token[:tokenID]); err != nil {
		return false
	}
	return strings.IndexFunc(token, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
