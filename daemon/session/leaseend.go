package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// updateOwner makes waiters wait for the present owner of a lease. The owner is read inside queueMu,
// so the later of two concurrent calls records the later owner.
func (d *Host) updateOwner(h *heldLease) {
	d.lockQueue(&h.waiter)
	defer d.unlockQueue(&h.waiter)
	d.mu.Lock()
	owner, isKept := h.ownerLocked(), h.life.State == locktable.Kept
	d.mu.Unlock()
	d.queue.ChangeOwner(&h.waiter, owner, isKept)
}

// forgetAfterMaxTTL deletes the record of a release after max_ttl, when the lock has certainly
// expired. It does not wait.
func (d *Host) forgetAfterMaxTTL(number uint64) {
	d.Journal.ForgottenAfter(number, d.Cfg.Quorum.MaxTTL, nil)
}

// forget ends everything that a client can ask about a lease.
func (d *Host) forget(h *heldLease) { d.apply(h, locktable.Dropped) }

// releaseWhenMinPassed releases a kept lease when min= has passed. Until then it extends the lease
// so far ahead that it stays taken even if this process or host ends: until min= has passed, or for
// most of max_ttl. It does not wait for the nodes.
func (d *Host) releaseWhenMinPassed(h *heldLease) {
	if !d.Stopping.Load() { // else outlastMin does it for all leases
		d.timers.After(0, func() { d.outlastMin([]*heldLease{h}, d.Cfg.Quorum.NodeTimeout) })
	}
	d.timers.After(min(d.minLeft(h), d.Cfg.Quorum.MaxTTL/minExtendShare), func() {
		if d.isKept(h) && d.minLeft(h) > 0 {
			d.releaseWhenMinPassed(h)
			return
		}
		d.releasedWithoutClient(h, d.apply(h, locktable.MinPassed), "min passed")
	})
}

// minExtendShare: a kept lease is extended again after this share of max_ttl.
const minExtendShare = 4

// outlastMin extends leases with min= so that they stay taken until it has passed, at most for
// max_ttl, even if this process ends.
func (d *Host) outlastMin(held []*heldLease, timeout time.Duration) {
	var leases []*redlock.Lease
	var until []time.Duration
	now := d.Clock()
	for _, h := range held {
		if left := d.minLeft(h); left > 0 {
			leases, until = append(leases, h.lease), append(until, now+left)
		}
	}
	if leases == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if n := d.Nodes.Outlast(ctx, leases, until); n < len(leases) {
		d.Log.Warn("locks with min= may be free too early if redlockd or this host ends: no quorum extended them", "locks", len(leases)-n, "of", len(leases))
	}
}

// leaseLost handles the loss of a lease. The client gets LOST before the deadline, and before
// anything that could block. The lease stays in the queue until the deadline, because its client
// may still be stopping.
func (d *Host) leaseLost(h *heldLease, lease *redlock.Lease) {
	d.Journal.Lost(h.number, lease.Reason())
	d.applyLoss(h)
	if left := lease.Validity(); left > 0 && lease.Reason() != redlock.LostForced {
		d.leaveQueueAfter(h, left)
	} else {
		d.apply(h, locktable.DeadlinePassed)
	}
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

// applyLoss applies the loss of a lease, and records its instant.
func (d *Host) applyLoss(h *heldLease) {
	now := d.Clock()
	d.applyIf(h, locktable.WasLost, 0, func() bool {
		h.lostAt = now
		return true
	})
}

// leaveQueueAfter takes a lost lease out of the queue after a delay.
func (d *Host) leaveQueueAfter(h *heldLease, delay time.Duration) {
	d.timers.After(delay, func() { d.apply(h, locktable.DeadlinePassed) })
}

// reportLoss sends LOST, and remembers the loss for as long as the client may ask about it.
func (d *Host) reportLoss(h *heldLease) {
	s, lease := d.reporter(h), h.lease
	if s != nil {
		s.sendLostEvent(h.waiter.Names, lease.ID(), lease.Reason(), LostText[lease.Reason()])
	}
	d.Journal.LossReported(h.number)
	switch {
	case s == nil && h.process == nil:
		d.forgetLostLater(h)
	default:
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
	tooMany := d.Limits.RememberLost(h.UID)
	d.mu.Lock()
	var oldest *heldLease
	if h.life.Memory != locktable.Forgotten { // else its client ended meanwhile
		oldest = h.index.remember(h, tooMany)
	}
	d.mu.Unlock()
	if oldest != nil {
		d.forget(oldest)
	}
}

var LostText = map[redlock.LostReason]string{
	redlock.LostForced:  "it was revoked with FORCE: others may already hold it, stop immediately",
	redlock.LostQuorum:  "it could not be extended on a quorum of nodes, or this host was stopped for too long: stop what it protects",
	redlock.LostBeat:    "no BEAT came in the time of beat=: stop what it protects",
	redlock.LostMax:     "its longest holding time (max) has passed: stop what it protects",
	redlock.LostExpired: "its ttl has passed: stop what it protects",
}

// clientEnd describes the end of a client's connection, for one of its leases.
type clientEnd struct {
	hold     ipc.Hold
	lost     bool // the lease was lost before
	lingers  bool // it has linger=
	cut      bool // the daemon cut the connection: the client may still work, and not know of the cut
	stopping bool // the daemon stops: the client can resume the lease with the next one
}

// endAction is what happens to a lease when its client's connection ends.
type endAction uint8

const (
	keepLease    endAction = iota // its ttl, its process, or the next daemon decides
	letExpire                     // it stays taken until the last deadline that the client was given
	lingerFirst                   // it is released after linger=, unless the client resumes it
	releaseNow                    // it is released
	forgetLoss                    // it is forgotten: no client can ask about it
	forgetForced                  // likewise, and names that FORCE did not take are released, because the client has stopped
)

// action decides what happens to the lease. It never releases the lease of a client that may still
// work.
func (e clientEnd) action() endAction {
	switch {
	case e.lost && e.hold == ipc.HoldConn && !e.cut && !e.stopping:
		return forgetForced
	case e.lost:
		return forgetLoss
	case e.hold != ipc.HoldConn, e.stopping:
		return keepLease
	case e.cut:
		return letExpire
	case e.lingers:
		return lingerFirst
	}
	return releaseNow
}

// clientGone does what clientEnd.action decides about a lease whose connection has ended. cut means
// that the daemon ended the connection.
func (d *Host) clientGone(h *heldLease, cut bool) {
	end := clientEnd{hold: h.hold, lost: h.lease.Err() != nil, lingers: h.linger() > 0, cut: cut, stopping: d.Stopping.Load()}
	switch end.action() {
	case letExpire:
		d.endCut(h)
	case lingerFirst, releaseNow:
		d.releaseOrLinger(h)
	case forgetForced:
		h.clientStopped()
		d.forgetLostLater(h)
	case forgetLoss:
		d.forgetLostLater(h)
	}
}

// clientStopped releases the other names of a lease that FORCE ended, because its client has
// stopped or is gone. Otherwise they become free at the deadline.
func (h *heldLease) clientStopped() {
	if h.lease.Reason() == redlock.LostForced {
		h.lease.ReleaseLost()
	}
}

// forgetLostLater forgets a lost lease whose client is gone. LIST shows it until other clients can
// get the lock.
func (d *Host) forgetLostLater(h *heldLease) {
	if left := h.lease.TimeToRelease(); left > 0 {
		d.timers.After(left, func() { d.apply(h, locktable.Dropped) })
		return
	}
	d.apply(h, locktable.Dropped)
}

// releaseOrLinger releases a lease without a client, at once or after linger=. It records the
// start of linger=, so that the next daemon continues it.
func (d *Host) releaseOrLinger(h *heldLease) {
	if h.linger() > 0 {
		now := d.Clock()
		d.Journal.Lingering(h.number, now)
		d.lingerFrom(h, now)
		return
	}
	d.releaseAbandoned(h, nil)
}

// lingerFrom releases a lease when linger= has passed since then.
func (d *Host) lingerFrom(h *heldLease, then time.Duration) {
	nth := d.countDisconnect(h)
	d.timers.After(then+h.linger()-d.Clock(), func() {
		d.releaseAbandoned(h, func() bool { return h.disconnects == nth })
	})
}

// endCut ends a lease of a connection that the daemon cut. Its client may work until the last
// deadline that it was given.
func (d *Host) endCut(h *heldLease) {
	if d.minLeft(h) == 0 {
		d.letExpire(h)
		return
	}
	d.keepUntil(h, h.lease.Deadline())
	d.releaseAbandoned(h, nil)
}

// letExpire stops extending a lease. A client that resumes the lease at the same time gets LOST. If
// the lease is released at the same time, it is not lost, and nothing is recorded.
func (d *Host) letExpire(h *heldLease) {
	if h.lease.LoseSilently(); h.lease.Reason() == "" {
		return
	}
	d.Journal.Lost(h.number, h.lease.Reason())
	d.logReleased(h, "connection cut")
	d.apply(h, locktable.ExtensionsEnded)
	if d.reporter(h) != nil {
		d.applyLoss(h)
	} else {
		d.forgetLostLater(h)
	}
	d.leaveQueueAfter(h, max(h.lease.Validity(), 0))
}

// releaseAbandoned releases a lease whose client is gone, if condition returns true; nil: always. It
// calls condition while it holds mu. It does not wait: the lanes repeat the release until every node
// has answered or the lock has expired. While the daemon stops it does nothing, because the client
// may still work.
func (d *Host) releaseAbandoned(h *heldLease, condition func() bool) {
	if d.Stopping.Load() {
		return
	}
	p := d.applyIf(h, locktable.ClientIsGone, 0, func() bool {
		hasClient := h.session != nil && h.process == nil // again, by RESUME
		return !hasClient && (condition == nil || condition())
	})
	reason := "connection ended"
	if h.process != nil {
		reason = "process ended"
	}
	d.releasedWithoutClient(h, p, reason)
}

// releasedWithoutClient records and logs how the release of a lease without a client began, if it
// did. If the lease turned out to be lost, it is forgotten, because no client can ask about it.
func (d *Host) releasedWithoutClient(h *heldLease, p performed, reason string) {
	switch {
	case p.kept > 0:
		d.Journal.Kept(h.number, 0)
	case p.err != nil:
		d.forget(h)
	case p.release != nil:
		d.forgetWhenReleased(h, p.release)
		d.Log.Debug("lease released: its client is gone", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID, "reason", reason)
		d.logReleased(h, reason)
	}
}

// logReleased logs a release and its reason, if the config asks for that.
func (d *Host) logReleased(h *heldLease, reason string) {
	if d.LeaseLog.LogsGrants() {
		d.LeaseLog.Released(d.logFacts(h, h.lease), d.Clock()-h.lease.Since(), reason)
	}
}

// logFacts returns the facts of a lease for the log, or of a request without one (nil).
func (d *Host) logFacts(h *heldLease, lease *redlock.Lease) logging.Lease {
	mode := modeOf(d.mode(h).Shared)
	if h.waiter.Kind.Slots > 0 {
		mode = "slots"
	}
	facts := logging.Lease{Lock: h.waiter.Label(), Mode: mode, UID: h.UID, User: h.User, PID: h.PID}
	if lease != nil {
		facts.Fence = lease.Fence()
	}
	return facts
}
