package session

import (
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// If no client waits, a lock with retain= stays with this host for a while after its holder has
// ended. Its state is retained then: nobody holds it, and the first client of this host that wants
// it gets it by a pass. See redlock.Lease.Retain. If a client of another host waits, redlock calls
// endRetentionEarly.

// maxRetained bounds the locks that this host retains at once. While a lock is retained, the
// nodes confirm it 60 times a second, all of them in one call.
const maxRetained = 100

// retention is retain= of a lease.
type retention struct {
	limit time.Duration // does not change

	// The lease's mu guards what follows.
	since     time.Duration // BootTime of the last begin of the retention; 0: it was never retained
	counted   bool          // in Host.retained
	endsEarly bool          // the retention must end early
	timer     *timers.Timer // ends the retention; may be nil
}

// newRetention returns the retention of a LOCK with these options, or nil if its lock is not
// retained. The default of the config applies to locks that can be retained.
func newRetention(call *server.Call, cfg *config.Lease) *retention {
	most := optionOr(call, ipc.OptRetain, call.Retain, cfg.Retain)
	if most == 0 || !mayRetain(call) {
		return nil
	}
	return &retention{limit: most}
}

// mayRetain reports whether the lock can be retained: only a lock that can be passed on.
func mayRetain(call *server.Call) bool {
	return call.Mode == ipc.Exclusive && call.Slots <= 1 && call.Hold != ipc.HoldTTL
}

// checkRetain checks retain= against the other options.
func (a *lockRequest) checkRetain() error {
	switch {
	case a.call.Retain > config.MaxRetain:
		return badOption("retain=%d: at most %d ms", ms(a.call.Retain), ms(config.MaxRetain))
	case a.call.Retain > 0 && !mayRetain(a.call):
		return badOption("retain= with mode=shared, slots= or hold=ttl: only an exclusive lock of a connection or a process is retained; leave it out")
	}
	return nil
}

// retain keeps a lease whose release is due for the next client of this host. The same record marks
// unlock (nil: there is none) as answered. It returns false if the lease must be released now: it
// has no retain=, a client waits, or this host has had the lock for so long that other hosts must
// get a chance to take it.
func (d *Host) retain(h *heldLease, unlock *server.Call) bool {
	r := h.retention()
	if r == nil || !h.mode().Exclusive() || d.Stopping.Load() || d.Queue.HasOther(&h.waiter) {
		return false
	}
	now := d.Clock()
	if d.Queue.Streak(&h.waiter).Next(h.lease.Since(), h.lease.Wanted(), now).Yields || !d.beginRetention(h, now) {
		return false
	}
	if !h.lease.Retain(r.limit, func() { d.endRetentionEarly(h) }) {
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
		return true // it was just lost
	}
	d.leaveHolder(h)
	d.releaseWhenRetained(h)
	return true
}

// beginRetention counts the lease as retained, unless too many are. It no longer counts towards its
// user's limit.
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

// uncountRetained ends what beginRetention began.
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

// leaveHolder takes a lease from its holder, which has ended.
func (d *Host) leaveHolder(h *heldLease) {
	d.removeFromIndex(h)
	if s := h.attached(); s != nil {
		h.detach(s)
	}
	h.stopHeartbeat()
	d.Queue.ChangeOwner(&h.waiter, h.ownerNow)
}

// releaseWhenRetained releases a retained lease when retain= has passed. It releases the lease at
// once if a reason came up just before the lease was retained.
func (d *Host) releaseWhenRetained(h *heldLease) {
	h.mu.Lock()
	early := h.retention().endsEarly
	if !early && h.life.state == retained {
		h.retention().timer = d.timers.After(h.retention().limit, func() { d.endRetention(h) })
	}
	h.mu.Unlock()
	if early || d.Stopping.Load() || d.Queue.HasOther(&h.waiter) {
		d.endRetention(h)
	}
}

// endRetentionEarly releases a retained lease because a client of another host waits, or may wait
// after a failed confirmation. redlock calls it, so it must not block: it releases on another
// goroutine.
func (d *Host) endRetentionEarly(h *heldLease) {
	h.mu.Lock()
	h.retention().endsEarly = true
	h.mu.Unlock()
	d.timers.After(0, func() { d.endRetention(h) })
}

// endRetention releases a retained lease, or passes it on to the first waiter of this host. It
// returns false if the lease is not retained.
func (d *Host) endRetention(h *heldLease) bool {
	if !h.on(retentionEnded).has(beginRelease) {
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

// endRetentionFor ends the retention of the locks that the request waits for.
func (d *Host) endRetentionFor(a *lockRequest) {
	for d.retained.Load() > 0 && a.waiter.Ready() != nil && !isClosed(a.waiter.Ready()) {
		h, _ := d.Queue.Obstacle(&a.waiter).Lease.(*heldLease)
		if h == nil || !d.endRetention(h) {
			return
		}
	}
}

// releaseRetained releases all retained leases, because the daemon stops.
func (d *Host) releaseRetained() {
	for _, h := range d.Leases.all() {
		d.endRetention(h)
	}
}

// retention returns the lease's retention; nil: it has no retain=.
func (h *heldLease) retention() *retention {
	if h.delays == nil {
		return nil
	}
	return h.delays.retention
}

// isRetained reports whether nobody holds the lease, and this host retains it.
func (h *heldLease) isRetained() bool { return h.isIn(retained) }

// isIn reports whether the lease is in a state.
func (h *heldLease) isIn(state leaseState) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.state == state
}

// wasRetained reports whether the lease is or was retained, so that its holder has ended.
func (h *heldLease) wasRetained() bool { return h.heldUntil(0) != 0 }

// heldUntil returns the BootTime at which the holder ended, or otherwise if it has not.
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

// retentionLeft returns how long the lease is retained at most; 0: it is not retained.
func (h *heldLease) retentionLeft(now time.Duration) time.Duration {
	if !h.isRetained() {
		return 0
	}
	return max(h.heldUntil(now)+h.retention().limit-now, time.Millisecond)
}

// retainer returns this host as the holder of a retained lease.
func (d *Host) retainer(h *heldLease) redlock.Holder {
	return redlock.Holder{Host: d.hostname, Since: time.Now().Add(h.heldUntil(d.Clock()) - d.Clock())}
}

// retainedIDs returns the leases that are retained, by the ids that the nodes show.
func (d *Host) retainedIDs(leases []*heldLease) map[string]redlock.Holder {
	ids := map[string]redlock.Holder{}
	for _, h := range leases {
		if h.isRetained() {
			ids[h.lease.TokenID()] = d.retainer(h)
		}
	}
	return ids
}

// lostRetained handles the loss of a retained lease. No client must get LOST, and none is still
// working.
func (d *Host) lostRetained(h *heldLease) {
	d.uncountRetained(h)
	h.lease.ReleaseLost()
	d.perform(h, h.onLost(d.Clock()))
	d.perform(h, h.on(deadlinePassed))
}
