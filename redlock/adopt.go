package redlock

import (
	"cmp"
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

// Adoption is the result of Adopt, in the order of the records.
type Adoption struct {
	Leases []*Lease // nil: the record was refused
	Errs   []error  // matches ErrRecord; nil: the record was adopted

	unconfirmed  atomic.Int64  // how many leases Wait waits for
	allConfirmed chan struct{} // closed when unconfirmed reaches 0
}

// Adopt continues leases of an earlier process on this host, with the same token, fencing token
// and deadline. An adopted lease supports the same operations as a granted one. Adopt does not
// wait for the nodes. It rejects a record that cannot be valid, and adopts the others.
//
// A lease that was lost earlier (Record.Lost) stays lost, and Adopt does not report it
// again.
//
// The keeper extends kept leases at once, many in one call per node. Call Settle first, or the
// first extension may fail because the nodes are not connected yet. Each lease is lost by its
// timer, like any other lease. Unless a quorum confirms it first, that is at the recorded
// deadline less the guard. If this instant has passed, the lease is lost at once and never
// extended. It is then released at its deadline. The same holds for a lease that the nodes refuse
// to extend.
//
// The function lost (may be nil) has the role of Request.OnLost, and receives the index of
// the record. Adopt itself never calls it, but it may be called before Adopt returns.
//
// BootTime measures the time since the earlier process ended. If that clock stopped meanwhile (a
// virtual machine that was suspended), this process cannot know it. The nodes' answers to the
// first extension show it. Until Wait returns, such a lease is only as reliable as this host's
// clock.
func (q *Quorum) Adopt(records []Record, lost func(i int, l *Lease)) *Adoption {
	a := &Adoption{Leases: make([]*Lease, len(records)), Errs: make([]error, len(records)), allConfirmed: make(chan struct{})}
	a.unconfirmed.Store(1) // until all leases are counted
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

// adoptable makes the lease of a record. The keeper does not watch it yet.
func (q *Quorum) adoptable(r *Record, known map[string]bool) (*Lease, error) {
	now := q.clock()
	t, err := q.targetOf(r)
	if err == nil {
		err = q.checkLease(r, now)
	}
	if err == nil && known[r.Token] {
		err = r.invalidError("its token belongs to another lease")
	}
	if err != nil {
		return nil, err
	}
	known[r.Token] = true
	q.slots.Hold(t.key, t.slot)
	l := &Lease{
		keeper:        q.keeper,
		target:        t,
		token:         cmp.Or(r.Former, r.Token),
		fence:         r.Fence,
		maybeOn:       q.allNodes(),
		kept:          r.Keep,
		since:         r.Since,
		maxHoldEnd:    r.End,
		guard:         r.Guard,
		ttl:           r.TTL,
		nextExtension: r.Deadline - r.TTL + r.TTL/extendShare, // when the earlier process would have extended it
		deadline:      r.Deadline,
		extra:         &leaseExtra{onConfirmed: func() {}, id: r.Grant}, // begin replaces onConfirmed if Wait waits for the lease
	}
	switch l.extra.holder = r.Holder; {
	case r.Former != "": // an exchange had begun, and continues
		l.extra.newToken.Store(&r.Token)
	case r.Grant != "": // a pass made the grant
		l.extra.dueAt = l.exchangeAt(now)
	}
	l.downgraded = t.kind == script.KindShared // nodes may still have it as exclusive
	return l, nil
}

// begin arms the timer that reports LOST. It returns false if LOST is due already: such a
// lease must not be extended.
func (a *Adoption) begin(l *Lease) (held bool) {
	now := l.keeper.clock()
	held = now < l.lossDue()
	if held && l.extendable() {
		a.unconfirmed.Add(1)
		l.extra.onConfirmed = sync.OnceFunc(a.countConfirmed)
	}
	l.arm(now)
	return held
}

// adoptLost makes l a lease that was lost earlier. The loss is not reported again, and the
// lease is released at its deadline like other lost leases.
func (l *Lease) adoptLost(reason LostReason) {
	now := l.keeper.clock()
	l.state, l.reason, l.forgotten = lost, reason, true // no other goroutine has l yet
	l.releaseAt = l.deadline
	l.mu.Lock() // the timer may fire at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.releaseAt-now, l.onTimer)
}

// countConfirmed counts a lease that a quorum confirmed, or that was lost or released.
func (a *Adoption) countConfirmed() {
	if a.unconfirmed.Add(-1) == 0 {
		close(a.allConfirmed)
	}
}

// Wait waits until a quorum has confirmed each kept lease once, or the lease was lost or
// released; Lease.Err says which. If ctx is done first, Wait returns its cause.
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
		return fmt.Errorf("not all leases from before the restart are confirmed: %w", context.Cause(ctx))
	}
}

// Abandon releases the token of an attempt or a release that was in progress when an earlier
// process on this host ended. For a lost lease, call it after the deadline, because the holder
// may still be stopping. Abandon does not wait for the nodes; the lanes repeat unanswered
// releases. It releases everything again a little later. Until then, a node may still execute
// calls that the earlier process sent, on connections that this process does not know. If the
// error matches ErrRecord, nothing is released.
func (q *Quorum) Abandon(r Record) error {
	t, err := q.targetOf(&r)
	if err != nil {
		return err
	}
	t.slot = 0 // this process has reserved no slot for it
	release := func() { q.abandon(&t, tokens{r.Token, r.Former}, q.allNodes()) }
	release()
	time.AfterFunc(node.SilenceLimit(q.options.NodeTimeout), release)
	return nil
}

// allNodes returns where an earlier process's token may be: on every node.
func (q *Quorum) allNodes() *node.NodeSet {
	placed := &node.NodeSet{}
	for i := range q.lanes {
		placed.Add(i)
	}
	return placed
}

// targetOf returns the target of a record. The error matches ErrRecord: there is no such lock, or
// the token cannot belong to it.
func (q *Quorum) targetOf(r *Record) (target, error) {
	wish := Request{Names: r.Names, Shared: r.Shared, Slots: r.Slots}
	if err := q.checkLock(&wish); err != nil {
		return target{}, r.invalidError("%v", err)
	}
	place, token := splitMember(r.Token)
	switch {
	case r.Slots == 1 || r.Slot < 0 || r.Slot > r.Slots || (r.Slot == 0) != (r.Slots == 0):
		return target{}, r.invalidError("slot %d of %d", r.Slot, r.Slots)
	case place != r.Slot:
		return target{}, r.invalidError("its token is for slot %d, not for %d", place, r.Slot)
	case !isToken(token) || r.Former != "" && (r.Slots > 0 || !isToken(r.Former)):
		return target{}, r.invalidError("its token was not made by this program")
	}
	t := q.target(&wish)
	t.slot = int32(r.Slot)
	return t, nil
}

// checkLease checks the fields of a granted lease against the time now. The error matches
// ErrRecord, and names the lock and the wrong field.
func (q *Quorum) checkLease(r *Record, now time.Duration) error {
	longest := q.options.MaxTTL
	switch {
	case r.TTL < MinTTL || r.TTL > longest:
		return r.invalidError("ttl %v: must be between %v and the current max_ttl, %v; its lock is free when it has expired on the nodes", r.TTL, MinTTL, longest)
	case r.TTL%time.Millisecond != 0:
		return r.invalidError("ttl %v: not whole milliseconds", r.TTL)
	case r.Guard < 0 || r.Guard > r.TTL/maxGuardShare:
		return r.invalidError("guard %v: must be between 0 and half of the ttl, %v", r.Guard, r.TTL/maxGuardShare)
	case r.Grant != "" && !isTokenID(r.Grant):
		return r.invalidError("its grant %q was not made by this program", r.Grant)
	case !script.IsFence(r.Fence):
		return r.invalidError("fencing token %d: must be between 1 and %d", r.Fence, uint64(script.MaxFence))
	case r.Since <= 0 || r.Since > now:
		return r.invalidError("granted at %v, but this host was booted %v ago: was it granted before that boot?", r.Since, now)
	case r.Deadline <= 0 || r.Deadline > now+longest: // a ttl that was shortened leaves the deadline unchanged
		return r.invalidError("deadline %v from now: more than the max_ttl of %v", r.Deadline-now, longest)
	case r.End != 0 && (r.End <= r.Since || r.Deadline > r.End):
		return r.invalidError("to be held from %v until at most %v, but its deadline is %v", r.Since, r.End, r.Deadline)
	}
	return nil
}

// isToken reports whether newToken can have returned token.
func isToken(token string) bool {
	if !holderOf(token).Known() || !utf8.ValidString(token) {
		return false
	}
	return isTokenID(token[:tokenID]) && strings.IndexFunc(token, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// isTokenID reports whether appendTokenID can have appended id.
func isTokenID(id string) bool {
	_, err := base64.RawURLEncoding.DecodeString(id)
	return err == nil && len(id) == tokenID
}
