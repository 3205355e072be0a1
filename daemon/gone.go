package daemon

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// abandoned is a holding whose connection has ended. Where it was we who cut
// it, the client may be at work and not know yet: the lock stays taken until
// the deadline that it was told.
func (d *daemon) abandoned(h *holding, wasCut bool) {
	switch {
	case h.lease.Err() != nil:
		if !wasCut && h.hold == ipc.HoldConn && !d.stopping.Load() {
			h.stopped()
		}
		d.unregisterLost(h)
	case h.hold != ipc.HoldConn: // held on, until its ttl is over; also where nobody knows whether its process lives
	case d.stopping.Load(): // it is we who go, and the client may be in the middle of its work: he can come back to the next daemon
	case wasCut:
		d.giveUp(h)
	default:
		d.giveBackAfterLinger(h)
	}
}

// stopped gives back what others may have anyway of a lease that was lost by FORCE:
// the rest of several names, now that its client has stopped, or is gone. Without that
// they are given back at the deadline.
func (h *holding) stopped() {
	if h.lease.Reason() == redlock.LostForced {
		h.lease.Stopped()
	}
}

// unregisterLost has LIST show a lost lease whose client is gone for as long as others
// cannot have the lock.
func (d *daemon) unregisterLost(h *holding) {
	if left := h.lease.Left(); left > 0 {
		time.AfterFunc(left, func() { d.unregister(h) })
		return
	}
	d.unregister(h)
}

// giveBackAfterLinger gives back at once where there is no linger=. When that began is
// noted: the next daemon is to go on with it.
func (d *daemon) giveBackAfterLinger(h *holding) {
	if h.linger > 0 {
		now := d.clock()
		d.journal.Lingering(h.number, now)
		d.lingerSince(h, now)
		return
	}
	d.giveBack(h)
}

// lingerSince gives back when linger= is over that began at an instant.
func (d *daemon) lingerSince(h *holding, then time.Duration) {
	nth := h.beginLinger()
	time.AfterFunc(then+h.linger-d.clock(), func() {
		if !h.lingersAgain(nth) {
			d.giveBack(h)
		}
	})
}

// giveUp lets a lease run out. Who has resumed it in this moment hears so. What somebody has
// given back in this moment is not lost, and noted as that.
func (d *daemon) giveUp(h *holding) {
	if h.lease.GiveUp(); h.lease.Reason() == "" {
		return
	}
	d.journal.Lost(h.number, h.lease.Reason())
	if h.attached() != nil {
		h.lostNow(d.clock())
		d.tellLost(h)
	} else {
		d.unregisterLost(h)
	}
	time.AfterFunc(max(h.lease.Validity(), 0), func() { d.end(h) })
}

// giveBack releases for a client that is gone. The lanes see to it that every
// node hears of it; nobody waits.
func (d *daemon) giveBack(h *holding) {
	if d.stopping.Load() || !h.claim() {
		return // it is we who go, and the client may be in the middle of its work; or it came back
	}
	release, err := d.release(h, 0)
	d.forget(h)
	if err == nil {
		d.gaveBack(h, release)
		d.log.Debug("lease given back: its client is gone", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID)
	}
}
