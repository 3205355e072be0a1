package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// whyNotReady returns why the request cannot have the lock, if a client of this host is in the
// way: no node was asked.
func (a *lockRequest) whyNotReady() error {
	switch way := a.session.host.Queue.Obstacle(&a.waiter); {
	case way.Holder != nil:
		return a.session.heldHere(way.Holder, way.Kind, way.Lease)
	case way.Waiter != nil:
		return a.session.blockedByWaiter(&a.waiter, way)
	case way.Failure != nil:
		return renamed(a.session.view(), way.Failure, &a.waiter)
	}
	return &redlock.HeldError{Name: a.waiter.Label()} // the obstacle has just gone, but the wait is over
}

// behindError is a HeldError for a lock that no client of this host holds: an earlier client
// waits for it, too.
type behindError struct {
	*redlock.HeldError        // its Holder is the earlier client
	why                string // why that client does not have the lock yet
}

func (e *behindError) Error() string {
	return fmt.Sprintf("%s: %v asked before, %s", e.Name, e.Holder, e.why)
}

func (e *behindError) Unwrap() error { return e.HeldError }

// blockedByWaiter returns the error for a waiter behind another waiter of this host. That one
// waits for readers to release, for another of its names, or for the nodes.
func (s *session) blockedByWaiter(p *waitqueue.Waiter, way waitqueue.Obstacle) error {
	held := &redlock.HeldError{Name: p.Label(), Holder: s.host.holderOf(way.Waiter.Requester, way.Waiter.Requester.Asked), Waiting: true}
	if way.Blockage != nil && way.Blockage.Together {
		held.Shared = true
		return held
	}
	return &behindError{held, s.whyBlocked(way)}
}

// whyBlocked returns what the earlier waiter waits for, without the names that the client may
// not see.
func (s *session) whyBlocked(way waitqueue.Obstacle) string {
	by, view := way.Blockage, s.view()
	switch {
	case by != nil && by.Held:
		return fmt.Sprintf("and waits for %s, which %v holds", view.Name(by.Name), by.Requester)
	case by != nil:
		return fmt.Sprintf("and waits for %s, which %v asked for earlier", view.Name(by.Name), by.Requester)
	case way.Failure != nil:
		return fmt.Sprintf("and waits for %s, held by others at least in part", view.Label(way.Waiter.Names))
	}
	return "and is asking the nodes for it"
}

// announceIntent tells the nodes that the request waits (writer intent), or renews that. An
// exclusive request waits in the daemon for the readers of this host, and readers of other hosts
// must not overtake it: see waitqueue.Waiter.NextInLine.
func (a *lockRequest) announceIntent() {
	if a.intent != nil {
		a.intent.Renew()
		return
	}
	intent, err := a.session.host.Nodes.Intend(a.Request())
	if err != nil { // a bad request: Acquire says so
		return
	}
	a.intent = intent
}

// endIntent ends the writer intent of a request that never asked the nodes for the lock.
func (a *lockRequest) endIntent() {
	if a.intent != nil {
		a.intent.End()
	}
}

// renamed returns an error that another waiter of this host got from the nodes, with the names
// of w: the client may not be allowed to see the names of the other request.
func renamed(view access.View, err error, w *waitqueue.Waiter) error {
	if held, ok := errors.AsType[*redlock.HeldError](err); ok && view.Rules != nil {
		own := *held
		own.Name = w.Label()
		return &own
	}
	if none, ok := errors.AsType[*redlock.NoQuorumError](err); ok && view.Rules != nil {
		own := *none
		own.Name = w.Label()
		return &own
	}
	return err
}

// redact replaces the names in a deadlock error that the client may not see.
func redact(view access.View, err error) error {
	deadlock, ok := errors.AsType[*waitqueue.DeadlockError](err)
	if !ok || view.Rules == nil {
		return err
	}
	cycle := slices.Clone(deadlock.Cycle)
	for i := range cycle {
		cycle[i].Name = view.Name(cycle[i].Name)
	}
	return &waitqueue.DeadlockError{Cycle: cycle}
}

// heldHere returns the error for a lock that a client of this daemon holds.
func (s *session) heldHere(w *waitqueue.Waiter, kind waitqueue.Kind, lease waitqueue.Lease) error {
	return &redlock.HeldError{
		Name:   s.view().Label(w.Names),
		Holder: s.host.holderOf(w.Requester, lease.Since()),
		Shared: kind.Shared,
		Slots:  int(kind.Slots),
		TTL:    max(lease.Validity(), time.Millisecond),
	}
}

// holderOf describes a client that has held a lock since a BootTime, or waited for it.
func (d *Host) holderOf(who *waitqueue.Requester, since time.Duration) redlock.Holder {
	return redlock.Holder{
		Host: d.hostname, PID: who.PID, UID: who.UID, User: who.User,
		Since: time.Now().Add(since - d.Clock()),
	}
}

// waitUntilReady waits until nothing in the wait queue blocks the request.
func (a *lockRequest) waitUntilReady(ctx context.Context) error {
	if a.waiter.Ready() == nil || isClosed(a.waiter.Ready()) {
		return nil
	}
	if a.wait == 0 {
		return a.whyNotReady()
	}
	timer := time.NewTimer(a.timeLeft())
	defer timer.Stop()
	near, renewal := a.waiter.NextInLine(), (<-chan time.Time)(nil)
	for {
		select {
		case <-a.waiter.Ready():
			return nil
		case <-near:
			near = nil
			a.announceIntent()
			ticker := time.NewTicker(a.ttl / intentRenewals)
			defer ticker.Stop()
			renewal = ticker.C
		case <-renewal:
			a.announceIntent()
		case <-timer.C:
			return a.whyNotReady()
		case <-a.holderGone():
			return errInputEnded // or the process, as outcome says
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// intentRenewals is how often a writer intent is renewed during a ttl: as often as a lease is
// extended.
const intentRenewals = 3

// holderGone returns a channel that is closed when the lease would end at once, because the
// client's input or the process has ended. Nil: the lease does not depend on these.
func (a *lockRequest) holderGone() <-chan struct{} {
	switch a.hold {
	case ipc.HoldConn:
		return a.session.inputEnded
	case ipc.HoldPID:
		return a.process.gone
	}
	return nil
}

// timeLeft returns how long the request may wait in the queue.
func (a *lockRequest) timeLeft() time.Duration {
	if a.wait == ipc.Forever {
		return math.MaxInt64
	}
	return a.waitLeft()
}

// A lock with retain= stays with this host for a while after its holder has ended, unless a
// client waits. Its state is retained then: nobody holds it, and the first client of this host
// that wants it gets it by a pass. See redlock.Lease.Retain.

// maxRetained bounds the locks that this host retains at once. While a lock is retained, the
// nodes confirm it 60 times a second, all of them in one call.
const maxRetained = 100

// retention is retain= of a lease.
type retention struct {
	most time.Duration // does not change

	// The lease's mu guards what follows.
	since   time.Duration // BootTime at which the lease was first to be retained; 0: it was not
	counted bool          // in Host.retained
	early   bool          // the retention is to end before its time
	timer   *timers.Timer // ends the retention; nil: none does
}

// newRetention returns what a LOCK with these options says about retain=, or nil if its lock is
// not retained. The default of the config applies to the locks that can be retained.
func newRetention(call *server.Call, cfg *config.Lease) *retention {
	most := given(call, ipc.OptRetain, call.Retain, cfg.Retain)
	if most == 0 || !mayRetain(call) {
		return nil
	}
	return &retention{most: most}
}

// mayRetain reports whether such a lock can be retained: as it can be passed on.
func mayRetain(call *server.Call) bool {
	return call.Mode == ipc.Exclusive && call.Slots <= 1 && call.Hold != ipc.HoldTTL
}

// checkRetain holds retain= against the other options.
func (a *lockRequest) checkRetain() error {
	switch {
	case a.call.Retain > config.MaxRetain:
		return badOption("retain=%d: at most %d ms", ms(a.call.Retain), ms(config.MaxRetain))
	case a.call.Retain > 0 && !mayRetain(a.call):
		return badOption("retain= with mode=shared, slots= or hold=ttl: only an exclusive lock of a connection or a process is retained; leave it out")
	}
	return nil
}

// retain keeps a lease whose release is due for the next client of this host. It answers the
// UNLOCK unlock, if that is not nil, in the state file. It returns false if the lease is to be
// released now: retain= does not say otherwise, a client waits, or the host had the lock for
// so long that others must get a moment to take it.
func (d *Host) retain(h *heldLease, unlock *server.Call) bool {
	r := h.retention()
	if r == nil || !h.mode().Exclusive() || d.Stopping.Load() || d.Queue.HasOther(&h.waiter) {
		return false
	}
	now := d.Clock()
	if d.Queue.Streak(&h.waiter).Next(h.lease.Since(), h.lease.Wanted(), now).Yields || !d.beginRetention(h, now) {
		return false
	}
	if !h.lease.Retain(r.most, func() { d.retentionIsOver(h) }) {
		d.uncountRetained(h)
		return false
	}
	if h.number != 0 {
		by := uint64(0)
		if unlock != nil {
			by = unlock.Number
			unlock.RecordingAnswer()
		}
		d.Journal.Kept(h.number, by)
	}
	if !h.on(retentionBegun).has(delayRelease) {
		return true // it was lost in this moment
	}
	d.leaveHolder(h)
	d.releaseWhenRetained(h)
	return true
}

// beginRetention counts the lease as retained, unless too many are. It is of no user any more.
func (d *Host) beginRetention(h *heldLease, now time.Duration) bool {
	if d.retained.Add(1) > maxRetained {
		d.retained.Add(-1)
		return false
	}
	h.mu.Lock()
	first := h.retention().since == 0
	h.retention().since, h.retention().counted = now, true
	h.mu.Unlock()
	if first {
		d.Limits.EndLease(h.UID, len(h.names()))
	}
	return true
}

// uncountRetained counts the lease as retained no more.
func (d *Host) uncountRetained(h *heldLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.retention()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if r.counted {
		d.retained.Add(-1)
		r.counted = false
	}
}

// leaveHolder takes a lease from its holder, who has ended.
func (d *Host) leaveHolder(h *heldLease) {
	d.removeFromIndex(h)
	if s := h.attached(); s != nil {
		h.detach(s)
	}
	h.stopHeartbeat()
	d.Queue.ChangeOwner(&h.waiter, h.ownerNow)
}

// releaseWhenRetained releases a retained lease when its time is over. What came while it was
// not retained yet ends it at once.
func (d *Host) releaseWhenRetained(h *heldLease) {
	h.mu.Lock()
	early := h.retention().early
	if !early && h.life.state == retained {
		h.retention().timer = d.timers.After(h.retention().most, func() { d.endRetention(h) })
	}
	h.mu.Unlock()
	if early || d.Stopping.Load() || d.Queue.HasOther(&h.waiter) {
		d.endRetention(h)
	}
}

// retentionIsOver is called when another host waits, or nobody knows whether one does.
func (d *Host) retentionIsOver(h *heldLease) {
	h.mu.Lock()
	h.retention().early = true
	h.mu.Unlock()
	d.timers.After(0, func() { d.endRetention(h) })
}

// endRetention releases a retained lease, or passes it on to the first waiter of this host. It
// returns false if the lease is not retained.
func (d *Host) endRetention(h *heldLease) bool {
	if !h.on(retentionOver).has(beginRelease) {
		return false
	}
	d.uncountRetained(h)
	release, err := d.release(h, 0)
	if err != nil {
		d.forget(h)
		return true
	}
	d.forgetWhenReleased(h, release)
	return true
}

// makeWay ends the retention of what the request waits for.
func (d *Host) makeWay(a *lockRequest) {
	for d.retained.Load() > 0 && a.waiter.Ready() != nil && !isClosed(a.waiter.Ready()) {
		h, _ := d.Queue.Obstacle(&a.waiter).Lease.(*heldLease)
		if h == nil || !d.endRetention(h) {
			return
		}
	}
}

// releaseRetained releases all retained leases: the daemon stops.
func (d *Host) releaseRetained() {
	for _, h := range d.Leases.all() {
		d.endRetention(h)
	}
}

// retention returns what retain= says of the lease; nil: it is not retained.
func (h *heldLease) retention() *retention {
	if h.delays == nil {
		return nil
	}
	return h.delays.retention
}

// isRetained tells whether nobody holds the lease, and this host retains it.
func (h *heldLease) isRetained() bool { return h.isIn(retained) }

// isIn tells whether the lease is in a state.
func (h *heldLease) isIn(state leaseState) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.state == state
}

// wasRetained tells whether the lease is or was retained: its holder has ended before.
func (h *heldLease) wasRetained() bool { return h.heldUntil(0) != 0 }

// heldUntil returns the BootTime at which the holder ended; otherwise, if it has not.
func (h *heldLease) heldUntil(otherwise time.Duration) time.Duration {
	if h.retention() == nil {
		return otherwise
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retention().since == 0 {
		return otherwise
	}
	return h.retention().since
}

// retentionLeft returns for how long the lease is retained at most; 0: it is not.
func (h *heldLease) retentionLeft(now time.Duration) time.Duration {
	if !h.isRetained() {
		return 0
	}
	return max(h.heldUntil(now)+h.retention().most-now, time.Millisecond)
}

// retainer returns this host as the holder of a retained lease.
func (d *Host) retainer(h *heldLease) redlock.Holder {
	return redlock.Holder{Host: d.hostname, Since: time.Now().Add(h.heldUntil(d.Clock()) - d.Clock())}
}

// retainedIDs returns which of the leases are retained, by the id that the nodes show.
func (d *Host) retainedIDs(leases []*heldLease) map[string]redlock.Holder {
	ids := map[string]redlock.Holder{}
	for _, h := range leases {
		if h.isRetained() {
			ids[h.lease.TokenID()] = d.retainer(h)
		}
	}
	return ids
}

// lostRetained is called when a retained lease is lost: nobody is to be told, and nobody is at
// work.
func (d *Host) lostRetained(h *heldLease) {
	d.uncountRetained(h)
	h.lease.Stopped()
	d.perform(h, h.onLost(d.Clock()))
	d.perform(h, h.on(deadlinePassed))
}
