package session

import (
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// performed is what apply has done.
type performed struct {
	did     leaseActions            // 0: the event came too late, or nothing was due
	kept    time.Duration           // with beginRelease: how long the lease stays taken (min=); 0: it does not
	release *redlock.PendingRelease // with beginRelease: the release that has begun
	err     error                   // with beginRelease: the release cannot begin, because the lease was lost
}

// apply applies an event to a lease, and does all that is due after it. No other code gets the
// actions of an event, so none of them can be forgotten.
func (d *Host) apply(h *heldLease, event leaseEvent) performed {
	return d.applyIf(h, event, 0, nil)
}

// applyIf is apply if condition returns true; nil: always. It calls condition while it holds the
// lease's mu. by is the number of the UNLOCK that leads to the event; 0: there is none.
func (d *Host) applyIf(h *heldLease, event leaseEvent, by uint64, condition func() bool) performed {
	return d.perform(h, h.change(event, condition), by)
}

// change changes the state of the lease, and returns what is due after that. Only applyIf calls it.
func (h *heldLease) change(event leaseEvent, condition func() bool) (do leaseActions) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if condition == nil || condition() {
		h.life, do = h.life.after(event)
	}
	return do
}

// perform does the actions of an event, in their order. Each action has a case here.
func (d *Host) perform(h *heldLease, do leaseActions, by uint64) performed {
	p := performed{did: do}
	for ; do != 0; do &= do - 1 {
		switch do & -do {
		case startHeartbeat:
			h.startHeartbeat(d)
		case sendLost:
			d.reportLoss(h)
		case beginRelease:
			if p.kept = d.keepTaken(h); p.kept == 0 {
				p.release, p.err = d.release(h, by)
			}
		case leaveQueue:
			d.leaveQueue(h)
		case countHeldTime:
			d.recorder.Held(d.Clock() - h.lease.Since())
		case rememberLoss:
			d.rememberLoss(h)
		case unregister:
			d.Leases.remove(h)
		case uncountLoss:
			d.Limits.ForgetLost(h.UID)
		case deleteRecord:
			d.Journal.Forgotten(h.number, 0)
		case delayRelease:
			d.leaveHolder(h)
			d.releaseWhenMinPassed(h)
		case dropLoss:
			h.clientStopped()
			d.forgetLostLater(h)
		}
	}
	return p
}
