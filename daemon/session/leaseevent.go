package session

import (
	"cmp"
	"errors"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// apply applies an event to a lease, and does all that is due after it. A function that must decide under
// mu whether the event happens applies it itself, and calls perform.
func (d *Host) apply(h *heldLease, event locktable.Event) {
	d.mu.Lock()
	due := d.table.Apply(&h.Lease, event)
	d.mu.Unlock()
	d.perform(h, due, nil)
}

// leaseLost handles the loss of a lease. The client gets LOST before the deadline, and before
// anything that could block. The lease stays in the queue until the deadline, because its client
// may still be stopping.
func (d *Host) leaseLost(h *heldLease, lease *redlock.Lease) { d.lose(h, lease, locktable.WasLost) }

// lose records that a lease ended without a release, and applies the event. The record comes first, and
// so before a client is told: otherwise a daemon that starts again could tell it twice.
func (d *Host) lose(h *heldLease, lease *redlock.Lease, event locktable.Event) {
	h.lostAt.Store(int64(d.Clock()))
	d.recordEvent(h, event, lease)
}

// perform does the effects of an event, in their order. No mutex is held. lost is the lease that ended
// without a release, because heldLease.lease may not be set yet; nil after other events.
func (d *Host) perform(h *heldLease, due locktable.Due, lost *redlock.Lease) {
	for do := due.Effects; do != 0; do &= do - 1 {
		switch do & -do {
		case locktable.StartHeartbeat:
			d.startHeartbeat(h)
		case locktable.SendLost:
			if s, lease := d.reporter(h), h.lease; s != nil {
				s.sendLostEvent(h.Waiter.Names, lease.ID(), lease.Reason(), LostText[lease.Reason()])
			}
			d.recordEvent(h, locktable.LossReported, nil)
		case locktable.LogCut:
			d.logReleased(h, "connection cut")
		case locktable.ReleaseRevoked:
			h.releaseRevoked()
		case locktable.ForgetLoss:
			d.forgetLostLater(h)
		case locktable.BeginRelease: // endHold begins it, because its caller needs the result
		case locktable.LeaveAtDeadline:
			// Until the deadline, other clients cannot get the lock, unless FORCE took it.
			deadlinePassed := func() { d.apply(h, locktable.DeadlinePassed) }
			if left := lost.Validity(); left > 0 && lost.Reason() != redlock.LostForced {
				d.timers.After(left, deadlinePassed)
			} else {
				deadlinePassed()
			}
		case locktable.CountLoss:
			d.recorder.Lost(lost.Reason())
			asked := h.hold == ipc.HoldTTL && lost.Reason() == redlock.LostExpired // it ended as its client requested
			d.LeaseLog.Lost(d.logFacts(h, lost), d.Clock()-lost.Since(), string(lost.Reason()), cmp.Or(lost.Cause(), d.expiryCause(h, lost.Reason())), asked)
		case locktable.LeaveQueue:
			d.stopHeartbeat(h)
			d.inQueue(&h.Waiter, func(q *locktable.Queue) { q.Leave(&h.Waiter, nil) })
		case locktable.CountHeldTime:
			d.recorder.Held(d.Clock() - h.lease.Since())
		case locktable.RememberLoss:
			d.mu.Lock()
			oldest := d.table.Remember(&h.Lease)
			d.mu.Unlock()
			if oldest != nil {
				d.forget(leaseOf(oldest))
			}
		case locktable.LeaveProcess:
			d.Processes.release(processOf(due.Process))
		case locktable.DeleteRecord:
			d.Journal.Forgotten(h.number, 0)
		case locktable.DelayRelease:
			d.stopHeartbeat(h)
			d.updateOwner(h)
			d.releaseWhenMinPassed(h)
		}
	}
}

// The causes of the expiry of a lease whose connection a restart did not keep.
var (
	errHolderGone = errors.New("its process had ended when redlockd started again, and no client resumed it")
	errNotResumed = errors.New("its connection ended with the previous redlockd, and no client resumed it")
)

// expiryCause says why a lease with hold=conn expired, or returns nil.
func (d *Host) expiryCause(h *heldLease, reason redlock.LostReason) error {
	if h.hold != ipc.HoldConn || reason != redlock.LostExpired || d.reporter(h) != nil {
		return nil
	}
	if d.isHolderGone(h) {
		return errHolderGone
	}
	return errNotResumed
}

func (s *session) sendLostEvent(names []string, lease string, reason redlock.LostReason, text string) {
	s.conn.Send(new(ipc.Response).Notice(ipc.EventLost).
		Strs("lock", names...).Str("lease", lease).Str("reason", string(reason)).Say(text))
}

var LostText = map[redlock.LostReason]string{
	redlock.LostForced:  "it was revoked with FORCE: others may already hold it, stop immediately",
	redlock.LostQuorum:  "it could not be extended on a quorum of nodes, or this host was stopped for too long: stop what it protects",
	redlock.LostBeat:    "no BEAT came in the time of beat=: stop what it protects",
	redlock.LostMax:     "its longest holding time (max) has passed: stop what it protects",
	redlock.LostExpired: "its ttl has passed: stop what it protects",
}

// forget ends everything that a client can ask about a lease.
func (d *Host) forget(h *heldLease) { d.apply(h, locktable.Dropped) }

// forgetLostLater forgets a lost lease whose client is gone. LIST shows it until other clients can
// get the lock.
func (d *Host) forgetLostLater(h *heldLease) {
	if left := h.lease.TimeToRelease(); left > 0 {
		d.timers.After(left, func() { d.forget(h) })
		return
	}
	d.forget(h)
}

// releaseRevoked releases the other names of a lease that FORCE ended, because its client has
// stopped or is gone. Otherwise they become free at the deadline.
func (h *heldLease) releaseRevoked() {
	if h.lease.Reason() == redlock.LostForced {
		h.lease.ReleaseLost()
	}
}
