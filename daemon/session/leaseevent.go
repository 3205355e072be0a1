package session

import (
	"cmp"
	"errors"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// performed is an event of a lease, with what perform has done.
type performed struct {
	locktable.Due                         // no effects: the event came too late, or nothing was due
	client        *locktable.Client       // of the end of a client: which one; of a lease that a restart left: its Holder
	lost          *redlock.Lease          // of a loss that redlock reported: heldLease.lease may not be set yet
	by            uint64                  // the number of the UNLOCK that leads to the event; 0: there is none
	lingers       time.Duration           // with Linger: since when (BootTime); 0: from now on
	reported      time.Duration           // with ReleaseUnclaimed: the last deadline that the client was given
	kept          time.Duration           // with BeginRelease: how long the lease stays taken (min=); 0: it does not
	release       *redlock.PendingRelease // with BeginRelease: the release that has begun
	err           error                   // with BeginRelease: the release cannot begin, because the lease was lost
}

// apply applies an event to a lease, and does all that is due after it. A function that must decide under
// mu whether the event happens applies it itself, and calls perform.
func (d *Host) apply(h *heldLease, event locktable.Event) (p performed) {
	d.mu.Lock()
	p.Due = d.table.Apply(&h.Lease, event)
	d.mu.Unlock()
	d.perform(h, &p)
	return p
}

// leaseLost handles the loss of a lease. The client gets LOST before the deadline, and before
// anything that could block. The lease stays in the queue until the deadline, because its client
// may still be stopping.
func (d *Host) leaseLost(h *heldLease, lease *redlock.Lease) {
	p := performed{lost: lease}
	d.recordLoss(h, lease)
	d.mu.Lock()
	p.Due = d.table.Apply(&h.Lease, locktable.WasLost)
	d.mu.Unlock()
	d.perform(h, &p)
}

// perform does the effects of an event, in their order. No mutex is held.
func (d *Host) perform(h *heldLease, p *performed) {
	for do := p.Effects; do != 0; do &= do - 1 {
		switch do & -do {
		case locktable.StartHeartbeat:
			d.startHeartbeat(h)
		case locktable.SendLost:
			d.reportLoss(h)
		case locktable.LogCut:
			d.logReleased(h, "connection cut")
		case locktable.ReleaseRevoked:
			h.releaseRevoked()
		case locktable.ForgetLoss:
			d.forgetLostLater(h)
		case locktable.LetExpire:
			d.endCut(h, p.client)
		case locktable.Linger:
			since := p.lingers
			if since == 0 {
				since = d.Clock()
				d.Journal.Lingering(h.number, since) // so that the next daemon continues it
			}
			d.timers.After(since+h.linger()-d.Clock(), func() { d.releaseAbandoned(h, p.client) })
		case locktable.Release:
			d.releaseAbandoned(h, p.client)
		case locktable.ReleaseUnclaimed:
			// Its client may work until the last deadline that it was given.
			d.keepUntil(h, p.reported)
			d.timers.After(d.minLeft(h), func() { d.releaseAbandoned(h, p.client) })
		case locktable.BeginRelease:
			// With min= nobody holds the lease any more, and the keeper still extends it.
			if p.kept = d.minLeft(h); p.kept == 0 || !d.apply(h, locktable.MinNotPassed).Has(locktable.DelayRelease) {
				p.kept = 0
				p.release, p.err = d.release(h, p.by)
			}
		case locktable.LeaveAtDeadline:
			// Until the deadline, other clients cannot get the lock, unless FORCE took it.
			deadlinePassed := func() { d.apply(h, locktable.DeadlinePassed) }
			if left := p.lostLease(h).Validity(); left > 0 && p.lostLease(h).Reason() != redlock.LostForced {
				d.timers.After(left, deadlinePassed)
			} else {
				deadlinePassed()
			}
		case locktable.CountLoss:
			d.countLoss(h, p.lostLease(h))
		case locktable.LeaveQueue:
			d.stopHeartbeat(h)
			d.inQueue(&h.Waiter, func(q *locktable.Queue) { q.Leave(&h.Waiter, nil) })
		case locktable.CountHeldTime:
			d.recorder.Held(d.Clock() - h.lease.Since())
		case locktable.RememberLoss:
			d.rememberLoss(h)
		case locktable.LeaveProcess:
			d.Processes.release(processOf(p.Process))
		case locktable.DeleteRecord:
			d.Journal.Forgotten(h.number, 0)
		case locktable.DelayRelease:
			d.stopHeartbeat(h)
			d.updateOwner(h)
			d.releaseWhenMinPassed(h)
		}
	}
}

func (p *performed) lostLease(h *heldLease) *redlock.Lease {
	if p.lost != nil {
		return p.lost
	}
	return h.lease
}

// recordLoss records a loss before its event is applied, and so before a client is told: otherwise a
// daemon that starts again could tell it twice.
func (d *Host) recordLoss(h *heldLease, lease *redlock.Lease) {
	h.lostAt.Store(int64(d.Clock()))
	d.Journal.Lost(h.number, lease.Reason())
}

func (d *Host) countLoss(h *heldLease, lease *redlock.Lease) {
	d.recorder.Lost(lease.Reason())
	asked := h.hold == ipc.HoldTTL && lease.Reason() == redlock.LostExpired // it ended as its client requested
	d.LeaseLog.Lost(d.logFacts(h, lease), d.Clock()-lease.Since(), string(lease.Reason()), cmp.Or(lease.Cause(), d.expiryCause(h, lease.Reason())), asked)
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

// reportLoss sends LOST, and remembers the loss for as long as the client may ask about it.
func (d *Host) reportLoss(h *heldLease) {
	s, lease := d.reporter(h), h.lease
	if s != nil {
		s.sendLostEvent(h.Waiter.Names, lease.ID(), lease.Reason(), LostText[lease.Reason()])
	}
	d.Journal.LossReported(h.number)
	if s == nil && !h.OfProcess {
		d.forgetLostLater(h)
	} else {
		d.apply(h, locktable.LossRemembered)
	}
}

func (s *session) sendLostEvent(names []string, lease string, reason redlock.LostReason, text string) {
	s.conn.Send(new(ipc.Response).Notice(ipc.EventLost).
		Strs("lock", names...).Str("lease", lease).Str("reason", string(reason)).Say(text))
}

// rememberLoss keeps a lost lease so that its client can ask about it, and forgets the oldest one
// if there are too many.
func (d *Host) rememberLoss(h *heldLease) {
	d.mu.Lock()
	oldest := d.table.Remember(&h.Lease)
	d.mu.Unlock()
	if oldest != nil {
		d.forget(leaseOf(oldest))
	}
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
