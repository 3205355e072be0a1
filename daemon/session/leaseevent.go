package session

import (
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// performed is what apply has done.
type performed struct {
	did     locktable.Effects       // 0: the event came too late, or nothing was due
	kept    time.Duration           // with BeginRelease: how long the lease stays taken (min=); 0: it does not
	release *redlock.PendingRelease // with BeginRelease: the release that has begun
	err     error                   // with BeginRelease: the release cannot begin, because the lease was lost

	uncharged int          // with LeaveQueue: how many LOCKs no longer count towards the user's limit
	process   *heldProcess // with LeaveIndex: the process that the lease no longer uses
}

// apply applies an event to a lease, and does all that is due after it. No other code gets the
// effects of an event, so none of them can be forgotten.
func (d *Host) apply(h *heldLease, event locktable.Event) performed {
	return d.applyIf(h, event, 0, nil)
}

// applyIf is apply if condition returns true; nil: always. It calls condition while it holds mu. by
// is the number of the UNLOCK that leads to the event; 0: there is none.
func (d *Host) applyIf(h *heldLease, event locktable.Event, by uint64, condition func() bool) performed {
	var p performed
	d.mu.Lock()
	if condition == nil || condition() {
		d.changeLocked(h, event, &p)
	}
	d.mu.Unlock()
	d.perform(h, &p, by)
	return p
}

// changeLocked changes the state of a lease, and what mu guards. The caller must call perform next.
func (d *Host) changeLocked(h *heldLease, event locktable.Event, p *performed) {
	h.life, p.did = h.life.After(event)
	for do := p.did; do != 0; do &= do - 1 {
		switch do & -do {
		case locktable.StartHeartbeat:
			d.startHeartbeatLocked(h)
		case locktable.LeaveQueue:
			h.stopHeartbeatLocked()
			p.uncharged = h.clearCountsLocked()
		case locktable.LeaveIndex:
			p.process = h.leaveIndexLocked()
		case locktable.Unregister:
			delete(d.leases.byID, h.lease.ID())
			if id := h.lease.TokenID(); h.lease.Passed() && d.leases.passed[id] == h {
				delete(d.leases.passed, id)
			}
		case locktable.DelayRelease:
			h.stopHeartbeatLocked()
			h.session = nil
		}
	}
}

// perform does the effects of an event that mu does not guard, in their order.
func (d *Host) perform(h *heldLease, p *performed, by uint64) {
	for do := p.did; do != 0; do &= do - 1 {
		switch do & -do {
		case locktable.SendLost:
			d.reportLoss(h)
		case locktable.BeginRelease:
			// With min= nobody holds the lease any more, and the keeper still extends it.
			if p.kept = d.minLeft(h); p.kept == 0 || !d.apply(h, locktable.MinNotPassed).did.Has(locktable.DelayRelease) {
				p.kept = 0
				p.release, p.err = d.release(h, by)
			}
		case locktable.LeaveQueue:
			d.leaveQueue(&h.waiter, nil)
			d.Limits.EndLease(h.UID, len(h.waiter.Names)+p.uncharged)
		case locktable.CountHeldTime:
			d.recorder.Held(d.Clock() - h.lease.Since())
		case locktable.RememberLoss:
			d.rememberLoss(h)
		case locktable.LeaveIndex:
			if p.process != nil {
				d.Processes.release(p.process)
			}
		case locktable.UncountLoss:
			d.Limits.ForgetLost(h.UID)
		case locktable.DeleteRecord:
			d.Journal.Forgotten(h.number, 0)
		case locktable.DelayRelease:
			d.updateOwner(h)
			d.releaseWhenMinPassed(h)
		case locktable.DropLoss:
			h.clientStopped()
			d.forgetLostLater(h)
		}
	}
}
