package session

import (
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// A lock with retain= stays with this host for a while after its holder has ended, unless a
// client waits. Its state is retained then: nobody holds it, and the first client of this host
// that wants it gets it by a pass. See redlock.Lease.Retain. If a client of another host waits,
// redlock calls endRetentionEarly.

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

// retain keeps a lease whose release is due for the next client of this host. With the same
// record it answers the UNLOCK unlock (nil: there is none). It returns false if the lease must be
// released now: it has no retain=, a client waits, or the host has had the lock for so long that
// other hosts must get a moment to take it.
func (d *Host) retain(h *heldLease, unlock *server.Call) bool {
	r := h.retention()
	if r == nil || !h.mode().Exclusive() || d.Stopping.Load() || d.Queue.HasOther(&h.waiter) {
		return false
	}
	now := d.Clock()
	if d.Queue.Streak(&h.waiter).Next(h.lease.Since(), h.lease.Wanted(), now).Yields || !d.beginRetention(h, now) {
		return false
	}
	if !h.lease.Retain(r.most, func() { d.endRetentionEarly(h) }) {
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

// beginRetention counts the lease as retained, unless too many are. The limits of its user do not
// count it any more.
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

// leaveHolder takes a lease from its holder, who has ended.
func (d *Host) leaveHolder(h *heldLease) {
	d.removeFromIndex(h)
	if s := h.attached(); s != nil {
		h.detach(s)
	}
	h.stopHeartbeat()
	d.Queue.ChangeOwner(&h.waiter, h.ownerNow)
}

// releaseWhenRetained releases a retained lease when its time is over. It releases the lease at once
// if a reason to do so came just before the lease was retained.
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

// endRetentionEarly releases a retained lease because a client of another host waits, or may wait (a
// confirmation failed). It does so on another goroutine: redlock calls it, and it must not block.
func (d *Host) endRetentionEarly(h *heldLease) {
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

// endRetentionFor ends the retention of the locks that the request waits for.
func (d *Host) endRetentionFor(a *lockRequest) {
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

// isIn reports whether the lease is in a state.
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
