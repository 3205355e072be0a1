package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// PassWindow is how long a lock may be passed on after its last confirmation began
// ([Lease.HandOver]). Force waits for it.
const PassWindow = 50 * time.Millisecond

// MaxBlock is the largest Request.Block.
const MaxBlock = 1024

// confirmEvery is how often the nodes confirm a lock while it is passed on. Answers that take
// less than twice as long never delay a pass.
const confirmEvery = PassWindow / 3

// hostLease has the state that grants have in common when a lock is passed on. The nodes see only
// one token, which one grant after the other uses, and one holder, this host. Only leases with a
// block of fencing tokens have a hostLease (Request.Block).
//
// While the lock is passed on, the nodes confirm it. Each node reports whether it holds the
// token, whether FORCE has noted the token, and whether other clients wait. A node counts only if
// it has held the token all the time. If its key was set again (repair), another client may have
// held the lock there in between.
type hostLease struct {
	block int // how many fencing tokens each confirmation reserves

	mu        sync.Mutex    // guards the fields below; may be taken while a Lease's or an extension's mu is held; no other mutex is taken inside it
	grant     *Lease        // the lease that has the token now
	blockEnd  uint64        // the last fencing token that a quorum of nodes reserved
	confirmed time.Duration // BootTime from which the last confirmation counts; 0: none counts
	askedAt   time.Duration // BootTime at which the last confirmation was sent
	passedAt  time.Duration // BootTime of the last pass, or of the grant
	repaired  quorum.Set    // nodes whose key a repair may have set again
}

func newHostLease(l *Lease, block int, blockEnd uint64, confirmed, now time.Duration) *hostLease {
	return &hostLease{block: block, grant: l, blockEnd: blockEnd, confirmed: confirmed, askedAt: confirmed, passedAt: now}
}

// host returns the lease's hostLease; nil: it has none.
func (l *Lease) host() *hostLease {
	if l.extra == nil {
		return nil
	}
	return l.extra.host
}

// current returns the lease that has the token now.
func (l *Lease) current() *Lease {
	h := l.host()
	if h == nil {
		return l
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grant
}

// lastReserved returns the last fencing token that is known to be reserved with the lease.
func (l *Lease) lastReserved() uint64 {
	h := l.host()
	if h == nil {
		return l.fence
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.blockEnd, l.fence)
}

// needsConfirmation reports whether the nodes must confirm the token at now. That is the case if
// the lock was granted or passed on within the last PassWindow.
func (h *hostLease) needsConfirmation(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.needsConfirmationLocked(now)
}

// needsConfirmationLocked is needsConfirmation for a caller that holds mu.
func (h *hostLease) needsConfirmationLocked(now time.Duration) bool {
	return now-h.passedAt <= PassWindow
}

// confirmationDue returns when the next confirmation is due, but at most due.
func (h *hostLease) confirmationDue(due, now time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.needsConfirmationLocked(now) {
		return due
	}
	return min(due, h.askedAt+confirmEvery)
}

// beginConfirmation records that a confirmation is sent at now, and returns it.
func (h *hostLease) beginConfirmation(now time.Duration) confirmation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.askedAt = now
	q := h.grant.keeper.q
	return confirmation{host: h, raiseTo: reserve(h.grant.fence, h.block, q.admission.ReserveLimit(now))}
}

// confirm records a confirmation that counts from the instant from. This host's clock has missed
// the time age since then, so the confirmation is that much older.
func (h *hostLease) confirm(from, age time.Duration, blockEnd uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed = max(h.confirmed, from-age)
	h.blockEnd = max(h.blockEnd, blockEnd)
}

// fail records that a confirmation failed. The lock is not passed on until one succeeds.
func (h *hostLease) fail() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed = 0
}

// age moves the last confirmation back, because this host's clock had stopped for the time by.
func (h *hostLease) age(by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed -= by
}

// noteRepair records that a repair is sent to some nodes.
func (h *hostLease) noteRepair(nodes quorum.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repaired |= nodes
}

// wasRepaired reports whether a repair was sent to a node.
func (h *hostLease) wasRepaired(node int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.repaired.Has(node)
}

// pass is a lock that was passed on but not yet granted to the next client.
type pass struct {
	successor *Lease          // the next client's lease: pending, and extended until it is granted
	release   *PendingRelease // the release by the previous client
}

// passOn ends the lease and makes the pending lease of the next client, with the same token. If
// the lock cannot be passed on, it returns nil and changes nothing.
func (l *Lease) passOn(r *Request, now time.Duration) *pass {
	h := l.host()
	if h == nil || !r.Keep {
		return nil
	}
	k := l.keeper
	next := l.succeed(r, now)
	if next == nil {
		return nil
	}
	p := &pass{successor: next, release: l.releasing()}
	p.release.passed = true
	k.forget(l)
	if k.watch(next, next.extensionDue()); k.wasForced(next) { // Force did not find it, because it was not in the queue yet
		next.lose(LostForced)
	}
	if r.BeforeAttempt != nil {
		r.BeforeAttempt(p.successor.Record())
	}
	return p
}

// succeed ends the lease and returns the pending lease of the next client. If the lock cannot be
// passed on, it returns nil.
func (l *Lease) succeed(r *Request, now time.Duration) *Lease {
	h := l.host()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.downgraded || l.isExchangingLocked() || !l.mayPassLocked(r.TTL, l.fence+1, now) {
		return nil
	}
	next := &Lease{
		keeper:        l.keeper,
		target:        l.target,
		token:         l.token,
		fence:         l.fence + 1,
		maybeOn:       l.maybeOn,
		onLost:        r.OnLost,
		wanted:        l.wanted,
		kept:          true,
		since:         now,
		ttl:           r.TTL,
		guard:         r.Guard,
		deadline:      l.deadline,
		missed:        l.missed,
		nextExtension: l.nextExtension,
		extra:         &leaseExtra{id: string(appendTokenID(make([]byte, 0, tokenID))), pending: true, host: h, exchange: exchange{holder: r.Holder}},
	}
	next.extra.dueAt = next.exchangeAt(now)
	l.state = released
	l.timer.Stop()
	next.arm(now) // takes next's mu while this lease's is held; no other goroutine has next yet
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grant, h.passedAt = next, now
	return next
}

// mayPassLocked reports whether a grant with this ttl and fencing token may have the lease's
// token at now. The caller holds mu.
func (l *Lease) mayPassLocked(ttl time.Duration, fence uint64, now time.Duration) bool {
	h := l.host()
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.errAtLocked(now) == nil && ttl <= l.ttl && l.deadline-now >= ttl/2 &&
		fence <= h.blockEnd && h.confirmed != 0 && now-h.confirmed <= PassWindow
}

// extensionDue returns when the lease's next extension is due. Its confirmations are due earlier.
func (l *Lease) extensionDue() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nextExtension
}

// isPending reports whether the lease was passed on and not granted yet.
func (l *Lease) isPending() bool {
	if l.extra == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.extra.pending
}

// granted turns the pending lease into a grant, if the lock may still be passed on. isClientGone is
// whether the client has ended in the meantime.
func (l *Lease) granted(r *Request, isClientGone bool) bool {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClientGone || !l.mayPassLocked(l.ttl, l.fence, now) || l.state != held {
		return false
	}
	l.extra.pending, l.extra.dueAt = false, l.exchangeAt(now)
	if l.since, l.nextExtension = now, max(l.nextExtension, now); r.Max > 0 {
		l.maxHoldEnd = holdEnd(r.Max, now)
		l.deadline = l.capDeadline(l.deadline)
		l.timer.Reset(l.lostAtLocked() - now)
	}
	h := l.host()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passedAt = now
	return true
}

// finishPass grants the lock that was passed on. If the lock may no longer be passed on, it
// begins the ballot of a hand-over instead, and returns neither a lease nor an error.
func (a *attempt) finishPass(ctx context.Context) (*Lease, error) {
	p := a.pass
	gone := ctx.Err() != nil || isClosed(a.r.StopRetrying)
	if p.successor.granted(a.r, gone) {
		a.q.counts.grants.Add(1)
		a.q.counts.passes.Add(1)
		p.release.complete()
		return p.successor, nil
	}
	if gone {
		return nil, &HeldError{Name: a.name()}
	}
	p.end()
	now := a.q.clock()
	*a = *a.q.newAttempt(a.r, &a.target, now)
	a.handOver(p.successor, p.release, now)
	return nil, nil
}

// end ends the pending lease. The caller releases or exchanges its token.
func (p *pass) end() {
	l := p.successor
	l.mu.Lock()
	l.state = released
	l.timer.Stop()
	l.mu.Unlock()
	l.keeper.forget(l)
}

// abandon releases the token. It does not wait for the nodes.
func (p *pass) abandon() {
	p.end()
	q := p.successor.keeper.q
	now := q.clock()
	q.call(q.releaseCall(&p.successor.target, p.successor.tokens(), p.successor.maybeOn, p.release, now), now)
}

// leaseExtra has the fields that few leases need: adopted leases, and leases that can be passed
// on.
type leaseExtra struct {
	onConfirmed func()     // called when an adopted lease is confirmed, lost or released; nil: it was granted here
	id          string     // the ID of a grant that a pass made; "": the ID is the random part of the token
	pending     bool       // passed on, and not granted yet; guarded by the lease's mu
	host        *hostLease // nil: the lock cannot be passed on
	exchange
}

// Wanted reports whether other clients, on any host, waited for the lock when it was granted. The
// nodes report that only for hand-overs, shared locks, semaphores and several names. While a lock
// is passed on, Wanted reports whether clients on other hosts waited at the last confirmation.
func (l *Lease) Wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted
}

// TokenID returns the random part of the token, which the nodes show ([Holding.ID]). It is the
// same as ID unless a pass made the grant: then it is the ID of an earlier grant. Half a second
// after a pass, the nodes show the grant's own ID ([Options.TokenChanges]).
func (l *Lease) TokenID() string {
	_, token := splitMember(l.token)
	return token[:tokenID]
}

// Passed reports whether the grant was made by a pass: see [Lease.HandOver].
func (l *Lease) Passed() bool { return l.extra != nil && l.extra.id != "" }

// isAdopted reports whether the lease was granted to an earlier process.
func (l *Lease) isAdopted() bool { return l.extra != nil && l.extra.onConfirmed != nil }

// reportConfirmed tells the Adoption that an adopted lease was confirmed, lost or released.
func (l *Lease) reportConfirmed() {
	if l.isAdopted() {
		l.extra.onConfirmed()
	}
}

// loseCurrent marks the lease lost that has the token now.
func (l *Lease) loseCurrent(reason LostReason) {
	for {
		now := l.current()
		if now.lose(reason); now == l.current() {
			return
		}
	}
}

// noteWanted records whether other clients wait for the lock.
func (l *Lease) noteWanted(wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = wanted
}

// confirmation is the part of an extension that lets a lease be passed on.
type confirmation struct {
	host    *hostLease // nil: the lease is not confirmed
	raiseTo uint64     // the last fencing token of the block to reserve

	nodes  quorum.Set // nodes that confirmed it and count
	wanted bool       // a node reported that another client waits
}

// confirmPassed makes the extension confirm the leases that are passed on.
func (e *extension) confirmPassed() {
	for i, l := range e.leases {
		h := l.host()
		if h == nil || !h.needsConfirmation(e.start) || l.isDowngraded() || l.tokens().former != "" {
			continue
		}
		if e.passed == nil {
			e.passed = make([]confirmation, len(e.leases))
		}
		e.passed[i] = h.beginConfirmation(e.start)
	}
}

// confirms reports whether the extension confirms the i-th lease.
func (e *extension) confirms(i int) bool { return e.passed != nil && e.passed[i].host != nil }

// countPassedLocked counts a node's reply for each lease that the extension confirms. It returns the
// leases that a quorum has just confirmed. The caller holds mu.
func (e *extension) countPassedLocked(node int, replies []Reply) (passable []int) {
	for i := range e.passed {
		c := &e.passed[i]
		if c.host == nil || replies[i].Err != nil || replies[i].Int < 1 || c.host.wasRepaired(node) {
			continue
		}
		c.wanted = c.wanted || replies[i].Int == confirmedAndWanted
		before := c.nodes
		if c.nodes |= quorum.Of(node); e.k.q.system.Decides(c.nodes) && !e.k.q.system.Decides(before) {
			passable = append(passable, i)
		}
	}
	return passable
}

// confirmedAndWanted is the reply to a confirmation if another client waits.
const confirmedAndWanted = 2

// allowPass records that a quorum confirmed the i-th lease: it may be passed on for PassWindow.
func (e *extension) allowPass(i int) {
	c := &e.passed[i]
	e.mu.Lock()
	wanted := c.wanted
	e.mu.Unlock()
	c.host.confirm(e.start, e.k.q.admission.TotalMissed()-e.missed, c.raiseTo)
	e.leases[i].current().noteWanted(wanted)
}
