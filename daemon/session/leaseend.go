package session

import (
	"errors"
	"time"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// forgetWhenReleased deletes the record of a released lease when all nodes have answered.
// Until then, at most until the lock has expired, a daemon that starts next repeats the
// release on the nodes that have not. It does not wait.
func (d *Host) forgetWhenReleased(h *heldLease, release *redlock.PendingRelease) {
	if h.number != 0 {
		release.Then(func(owing int) { d.releasedExcept(h.number, owing) })
	}
}

// maxOwed bounds what is noted of releases that a quorum has heard of: where a node answers
// all of them with an error, each UNLOCK would make the table longer. (Where so many do that
// nobody gets a lock, there is an end of that.)
const maxPendingReleases = 10000

// releasedExcept records the release of a lease on all nodes except so many.
func (d *Host) releasedExcept(number uint64, owing int) {
	switch nodes := &d.Cfg.Quorum; {
	case owing > len(nodes.Nodes)-nodes.Needed():
		d.forgetAfterMaxTTL(number)
	case owing > 0 && d.countPendingRelease():
		d.Journal.ForgottenAfter(number, nodes.MaxTTL, func() { d.pendingReleases.Add(-1) })
	default:
		d.Journal.Forgotten(number, 0)
	}
}

// countPendingRelease counts one in, unless it is one too many.
func (d *Host) countPendingRelease() bool {
	if d.pendingReleases.Add(1) <= maxPendingReleases {
		return true
	}
	d.pendingReleases.Add(-1)
	return false
}

// forgetAfterMaxTTL deletes the record of a release when the lock has expired in any case. It
// does not wait.
func (d *Host) forgetAfterMaxTTL(number uint64) {
	d.Journal.ForgottenAfter(number, d.Cfg.Quorum.MaxTTL, nil)
}

// unregister removes a lease from the leases by id, and deletes its record unless it is being
// released.
func (d *Host) unregister(h *heldLease) {
	d.Leases.remove(h)
	if h.forget() {
		d.Limits.ForgetLost(h.UID)
	}
	h.mu.Lock()
	giving := h.releasing
	h.mu.Unlock()
	if !giving {
		d.Journal.Forgotten(h.number, 0)
	}
}

// leaveQueue takes a lease that is not held any longer out of the queue, once.
func (d *Host) leaveQueue(h *heldLease) {
	h.ended.Do(func() {
		h.stopHeartbeat()
		h.clearCounts()
		d.Queue.Leave(&h.waiter, nil)
		d.Limits.EndLease(h.UID, len(h.names()))
		d.settleReentrancy(h)
		if h.hasBegun() {
			d.recorder.Held(d.Clock() - h.lease.Since())
		}
	})
}

// index adds a lease to its index. Lost leases with the same names are forgotten. If the
// process of the lease has ended meanwhile, the lease ends as well.
func (d *Host) index(h *heldLease) {
	if h.process != nil {
		d.Processes.keep(h.process)
		h.attached().addProcessLease(h)
	}
	before, open := h.currentIndex().add(h)
	for _, old := range before {
		d.forget(old)
	}
	if !open {
		d.processEnded(h)
	}
}

// forget ends everything that a client can ask about a lease.
func (d *Host) forget(h *heldLease) {
	if h.lease != nil {
		d.unregister(h)
	}
	d.removeFromIndex(h)
}

// removeFromIndex removes a lease from its index and from its session.
func (d *Host) removeFromIndex(h *heldLease) {
	if s := h.attached(); s != nil {
		s.removeLease(h)
	}
	if h.process != nil {
		h.currentIndex().remove(h)
		h.freed.Do(func() { d.Processes.release(h.process) })
	}
}

// release begins the release of a lease without waiting for the nodes, and takes it out of the
// wait queue. If the next waiter wants exactly the same names, its attempt begins in the same
// call of the nodes: the first bytes leave before any goroutine wakes. On an error of
// Lease.BeginRelease nothing was done. by is the number of the UNLOCK; 0: the client is gone.
func (d *Host) release(h *heldLease, by uint64) (*redlock.PendingRelease, error) {
	d.noteRelease(h, by)
	goesOn := d.Queue.Streak(&h.waiter).Next(h.lease.Since(), h.lease.Wanted(), d.Clock())
	if next := d.nextFor(h, goesOn); next != nil {
		if release := d.handOver(h, next); release != nil {
			d.endRow(h, goesOn)
			return release, nil
		}
	}
	release, err := h.lease.BeginRelease()
	if err != nil {
		h.setReleasing(errors.Is(err, redlock.ErrReleased)) // by another UNLOCK, whose record it is
		return nil, err
	}
	d.endRow(h, goesOn)
	return release, nil
}

// noteRelease records a release, by the request with that number, before any node is told. If
// the lease turns out to be lost, that is recorded as well.
func (d *Host) noteRelease(h *heldLease, by uint64) {
	h.setReleasing(true)
	d.Journal.Releasing(h.number, by)
}

func (h *heldLease) setReleasing(giving bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releasing = giving
}

// nextFor returns the waiter that gets the lock from h directly, or nil.
func (d *Host) nextFor(h *heldLease, goesOn waitqueue.Streak) *waitqueue.Waiter {
	if goesOn.Yields {
		return nil
	}
	return d.Queue.ClaimNext(&h.waiter, goesOn)
}

// handOver begins the attempt of the next waiter. It returns nil if that is impossible:
// nothing was done then, and the waiter is back in the queue.
func (d *Host) handOver(h *heldLease, next *waitqueue.Waiter) *redlock.PendingRelease {
	release, begun, err := h.lease.HandOver(next.Request())
	if err != nil {
		d.Queue.Unclaim(next)
		return nil
	}
	if !d.Queue.Deliver(next, begun) {
		begun.Abandon()
		next.Undelivered()
	}
	return release
}

// endRow takes a released lease out of the queue; the waiters that become ready continue its
// streak.
func (d *Host) endRow(h *heldLease, goesOn waitqueue.Streak) {
	d.Queue.SetStreak(&h.waiter, goesOn)
	d.leaveQueue(h)
}

// rememberLossFor is how long a connection that stays open can ask about a lost lease.
const rememberLossFor = time.Hour

// leaseLost is called when a lease is lost. The client is told before the deadline, and before
// anything that could block. The lease stays in the queue until the deadline, as its client
// may still be stopping.
func (d *Host) leaseLost(h *heldLease, lease *redlock.Lease) {
	d.Journal.Lost(h.number, lease.Reason())
	if h.markLost(d.Clock()) {
		d.reportLoss(h)
	}
	if left := lease.Validity(); left > 0 && lease.Reason() != redlock.LostForced {
		d.timers.After(left, func() { d.leaveQueue(h) })
	} else {
		d.leaveQueue(h)
	}
	d.recorder.Lost(lease.Reason())
	d.logLost(h, lease)
}

// reportLoss sends LOST, and remembers the loss for as long as the client may ask about it.
func (d *Host) reportLoss(h *heldLease) {
	s, lease := h.attached(), h.lease
	if s != nil {
		s.sayLost(h.names(), lease.ID(), lease.Reason(), LostText[lease.Reason()])
	}
	d.Journal.LossReported(h.number)
	switch {
	case s == nil && h.process == nil:
		d.forgetLostLater(h)
	default:
		d.rememberLoss(h)
	}
}

func (s *session) sayLost(names []string, lease string, reason redlock.LostReason, text string) {
	s.conn.Send(new(ipc.Response).Notice(ipc.EventLost).
		Strs("lock", names...).Str("lease", lease).Str("reason", string(reason)).Say(text))
}

// rememberLoss keeps a lost lease for questions of its client, and forgets the oldest one if
// there are too many.
func (d *Host) rememberLoss(h *heldLease) {
	if !h.remember() {
		return // its connection has ended meanwhile
	}
	if oldest := h.currentIndex().remember(h, d.Limits.RememberLost(h.UID)); oldest != nil {
		d.forget(oldest)
	}
}

// lostLongAgo tells whether a lease was lost longer ago than a client may ask about it.
func (d *Host) lostLongAgo(h *heldLease) bool {
	h.mu.Lock()
	lostAt := h.lostAt
	h.mu.Unlock()
	return lostAt != 0 && d.Clock()-lostAt > rememberLossFor
}

var LostText = map[redlock.LostReason]string{
	redlock.LostForced:  "somebody took it away with FORCE: others may hold it already, stop at once",
	redlock.LostQuorum:  "it could not be extended on a quorum of nodes, or this host was stopped for too long: stop what it protects",
	redlock.LostBeat:    "no BEAT came for as long as beat= says: stop what it protects",
	redlock.LostMax:     "its longest holding time (max) is over: stop what it protects",
	redlock.LostExpired: "its ttl is over: stop what it protects",
}

// clientGone does what the policy says (clientEnd) about a lease whose connection has ended.
// cut: the daemon ended the connection.
func (d *Host) clientGone(h *heldLease, cut bool) {
	end := clientEnd{hold: h.hold, lost: h.lease.Err() != nil, lingers: h.linger > 0, cut: cut, stopping: d.Stopping.Load()}
	switch end.action() {
	case letExpire:
		d.letExpire(h)
	case lingerFirst, releaseNow:
		d.releaseAfterLinger(h)
	case forgetForced:
		h.clientStopped()
		d.forgetLostLater(h)
	case forgetLoss:
		d.forgetLostLater(h)
	}
}

// clientStopped releases the rest of a lease of several names that was lost by FORCE, as its
// client has stopped or is gone. Otherwise the rest ends at the deadline.
func (h *heldLease) clientStopped() {
	if h.lease.Reason() == redlock.LostForced {
		h.lease.Stopped()
	}
}

// forgetLostLater forgets a lost lease whose client is gone. LIST shows it until other clients
// can have the lock.
func (d *Host) forgetLostLater(h *heldLease) {
	if left := h.lease.Left(); left > 0 {
		d.timers.After(left, func() { d.unregister(h) })
		return
	}
	d.unregister(h)
}

// releaseAfterLinger releases a lease without a client, at once or after linger=. The begin of
// linger= is recorded: a daemon that starts next continues it.
func (d *Host) releaseAfterLinger(h *heldLease) {
	if h.linger > 0 {
		now := d.Clock()
		d.Journal.Lingering(h.number, now)
		d.lingerFrom(h, now)
		return
	}
	d.releaseAbandoned(h)
}

// lingerFrom releases a lease when its linger=, which began at an instant, is over.
func (d *Host) lingerFrom(h *heldLease, then time.Duration) {
	nth := h.countDisconnect()
	d.timers.After(then+h.linger-d.Clock(), func() {
		if !h.disconnectedAgain(nth) {
			d.releaseAbandoned(h)
		}
	})
}

// letExpire stops extending a lease. A client that resumes it in this moment is told of the
// loss. If it is released in this moment, it is not lost, and nothing is recorded.
func (d *Host) letExpire(h *heldLease) {
	if h.lease.GiveUp(); h.lease.Reason() == "" {
		return
	}
	d.Journal.Lost(h.number, h.lease.Reason())
	d.logReleased(h, "connection cut")
	if h.attached() != nil {
		h.markLost(d.Clock())
		d.reportLoss(h)
	} else {
		d.forgetLostLater(h)
	}
	d.timers.After(max(h.lease.Validity(), 0), func() { d.leaveQueue(h) })
}

// releaseAbandoned releases a lease whose client is gone. It does not wait: the lanes repeat
// the release until every node has answered or the lock has expired.
func (d *Host) releaseAbandoned(h *heldLease) {
	if d.Stopping.Load() || !h.claimRelease() {
		return // it is we who go, and the client may be in the middle of its work; or it came back
	}
	release, err := d.release(h, 0)
	d.forget(h)
	if err == nil {
		d.forgetWhenReleased(h, release)
		d.Log.Debug("lease released: its client is gone", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID)
		d.logReleased(h, goneReason(h))
	}
}

// goneReason says what ended: the process, or the connection of the client.
func goneReason(h *heldLease) string {
	if h.process != nil {
		return "process ended"
	}
	return "connection ended"
}

// logLost logs a lost lease: as a warning, unless it ended as its client requested.
func (d *Host) logLost(h *heldLease, lease *redlock.Lease) {
	asked := h.hold == ipc.HoldTTL && lease.Reason() == redlock.LostExpired
	d.LeaseLog.Lost(leaseFacts(h, lease), d.Clock()-lease.Since(), string(lease.Reason()), lease.Cause(), asked)
}

// logReleased logs a release and why it happened, if the config asks for that.
func (d *Host) logReleased(h *heldLease, reason string) {
	if d.LeaseLog.LogsGrants() {
		d.LeaseLog.Released(leaseFacts(h, h.lease), d.Clock()-h.lease.Since(), reason)
	}
}

// leaseFacts returns what the log says of a lease.
func leaseFacts(h *heldLease, lease *redlock.Lease) logging.Lease {
	mode := modeOf(h.waiter.Kind.Shared)
	if h.waiter.Kind.Slots > 0 {
		mode = "slots"
	}
	return logging.Lease{Lock: h.waiter.Label(), Fence: lease.Fence(), Mode: mode, UID: h.UID, User: h.User, PID: h.PID}
}
