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
}

// apply applies an event to a lease, and does all that is due after it. No other code gets the
// effects of an event, so none of them can be forgotten.
func (d *Host) apply(h *heldLease, event locktable.Event) performed {
	return d.applyIf(h, event, 0, nil)
}

// applyIf is apply if condition returns true; nil: always. It calls condition while it holds the
// lease's mu. by is the number of the UNLOCK that leads to the event; 0: there is none.
func (d *Host) applyIf(h *heldLease, event locktable.Event, by uint64, condition func() bool) performed {
	return d.perform(h, h.change(event, condition), by)
}

// change changes the state of the lease, and returns what is due after that. Only applyIf calls it.
func (h *heldLease) change(event locktable.Event, condition func() bool) (do locktable.Effects) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if condition == nil || condition() {
		h.life, do = h.life.After(event)
	}
	return do
}

// perform does the effects of an event, in their order. Each effect has a case here.
func (d *Host) perform(h *heldLease, do locktable.Effects, by uint64) performed {
	p := performed{did: do}
	for ; do != 0; do &= do - 1 {
		switch do & -do {
		case locktable.StartHeartbeat:
			h.startHeartbeat(d)
		case locktable.SendLost:
			d.reportLoss(h)
		case locktable.BeginRelease:
			if p.kept = d.keepTaken(h); p.kept == 0 {
				p.release, p.err = d.release(h, by)
			}
		case locktable.LeaveQueue:
			d.leaveQueue(h)
		case locktable.CountHeldTime:
			d.recorder.Held(d.Clock() - h.lease.Since())
		case locktable.RememberLoss:
			d.rememberLoss(h)
		case locktable.Unregister:
			d.Leases.remove(h)
		case locktable.UncountLoss:
			d.Limits.ForgetLost(h.UID)
		case locktable.DeleteRecord:
			d.Journal.Forgotten(h.number, 0)
		case locktable.DelayRelease:
			d.leaveHolder(h)
			d.releaseWhenMinPassed(h)
		case locktable.DropLoss:
			h.clientStopped()
			d.forgetLostLater(h)
		}
	}
	return p
}
