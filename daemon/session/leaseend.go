package session

import (
	"fmt"
	"time"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// perform does what an event of a lease requires. The caller of heldLease.on does the other actions
// itself: startHeartbeat, beginRelease, delayRelease, allowResume, keepLoss.
func (d *Host) perform(h *heldLease, do leaseActions) {
	if do.has(sendLost) {
		d.reportLoss(h)
	}
	if do.has(leaveQueue) {
		d.leaveQueue(h)
	}
	if do.has(countHeldTime) {
		d.recorder.Held(h.heldUntil(d.Clock()) - h.lease.Since())
	}
	if do.has(unregister) {
		d.Leases.remove(h)
	}
	if do.has(uncountLoss) {
		d.Limits.ForgetLost(h.UID)
	}
	if do.has(dropLoss) {
		h.clientStopped()
		d.forgetLostLater(h)
	}
	if do.has(deleteRecord) {
		d.Journal.Forgotten(h.number, 0)
	}
}

// leaveQueue takes a lease that is not held any longer out of the queue.
func (d *Host) leaveQueue(h *heldLease) {
	h.stopHeartbeat()
	h.clearCounts()
	d.Queue.Leave(&h.waiter, nil)
	if !h.wasRetained() { // else it was counted out before
		d.Limits.EndLease(h.UID, len(h.names()))
	}
	d.settleReentrancy(h)
}

// forgetWhenReleased deletes the record of a released lease when all nodes have answered.
// Until then, at most until the lock has expired, a daemon that starts next repeats the
// release on the nodes that have not. It does not wait.
func (d *Host) forgetWhenReleased(h *heldLease, release *redlock.PendingRelease) {
	release.Then(func(unanswered int) {
		h.on(nodesReleased)
		if h.number != 0 {
			d.releasedExcept(h.number, unanswered)
		}
	})
}

// maxPendingReleases bounds the records of releases that a quorum has answered. If a node
// answers all releases with an error, each UNLOCK would make the state file longer. (If a
// quorum does so, nobody gets a lock, and the file does not grow.)
const maxPendingReleases = 10000

// releasedExcept records the release of a lease on all nodes except so many.
func (d *Host) releasedExcept(number uint64, unanswered int) {
	switch nodes := &d.Cfg.Quorum; {
	case unanswered > len(nodes.Nodes)-nodes.Needed():
		d.forgetAfterMaxTTL(number)
	case unanswered > 0 && d.countPendingRelease():
		d.Journal.ForgottenAfter(number, nodes.MaxTTL, func() { d.pendingReleases.Add(-1) })
	default:
		d.Journal.Forgotten(number, 0)
	}
}

// countPendingRelease counts one more, unless it is one too many.
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

// addToIndex adds a lease to its index. Lost leases with the same names are forgotten. If the
// process of the lease has ended meanwhile, the lease ends as well.
func (d *Host) addToIndex(h *heldLease) {
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
		d.perform(h, h.on(dropped))
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
		d.Processes.release(h.takeProcess())
	}
}

// undone is what undoLock has done.
type undone struct {
	left     int                     // LOCKs that still count on the lease
	kept     time.Duration           // with none left: how long it stays taken (min=); 0: not at all
	retained bool                    // with none left: this host retains it, and the UNLOCK is recorded as answered
	release  *redlock.PendingRelease // otherwise: it is being released
}

// undoLock undoes the LOCK of a lease that came last, by an UNLOCK (nil: by none). With none
// left it begins the release, unless the lease is to be kept or retained. If it is kept, the
// caller records that.
func (d *Host) undoLock(h *heldLease, unlock *server.Call) (u undone, err error) {
	left, do := h.countDown()
	d.settleReentrancy(h)
	switch u.left = left; {
	case left > 0:
	case !do.has(beginRelease):
		err = h.endError()
	default:
		if u.kept = d.keepTaken(h); u.kept > 0 {
			break
		}
		if u.retained = d.retain(h, unlock); !u.retained {
			u.release, err = d.release(h, numberOf(unlock))
		}
	}
	return u, err
}

// numberOf returns the number of a request in the journal; 0: there is none.
func numberOf(call *server.Call) uint64 {
	if call == nil {
		return 0
	}
	return call.Number
}

// keepTaken keeps a lease taken if its release is due and min= has not passed. It returns how long
// that takes; 0: the release is not delayed. Nobody holds the lease then, and the keeper still
// extends it. The caller records that nobody holds it.
func (d *Host) keepTaken(h *heldLease) (left time.Duration) {
	if left = h.minLeft(d.Clock()); left == 0 || !h.on(minLeft).has(delayRelease) {
		return 0
	}
	d.leaveHolder(h)
	d.releaseWhenMinPassed(h)
	return left
}

// releaseWhenMinPassed releases a kept lease when min= has passed.
func (d *Host) releaseWhenMinPassed(h *heldLease) {
	d.timers.After(h.minLeft(d.Clock()), func() {
		switch {
		case h.minLeft(d.Clock()) > 0: // the timer's clock stopped while the host was suspended, or is coarse
			d.releaseWhenMinPassed(h)
		case h.on(minPassed).has(beginRelease):
			d.releaseWithoutClient(h, "min passed")
		}
	})
}

// endError says why a lease cannot be released: it was lost, or another request releases it.
func (h *heldLease) endError() error {
	if err := h.lease.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", h.waiter.Label(), redlock.ErrReleased)
}

// release begins the release of a lease whose state is releasing, and forgets it. It does not
// wait for the nodes. The release is recorded before any node is told. by is the number of the
// UNLOCK; 0: the client is gone. An error says that the lease was lost: nothing was done.
func (d *Host) release(h *heldLease, by uint64) (*redlock.PendingRelease, error) {
	d.Journal.Releasing(h.number, by)
	streak := d.Queue.Streak(&h.waiter).Next(h.lease.Since(), h.lease.Wanted(), d.Clock())
	release, err := d.sendRelease(h, streak)
	if err != nil {
		d.perform(h, h.on(releaseRefused))
		return nil, err
	}
	d.Queue.SetStreak(&h.waiter, streak)
	d.perform(h, h.on(releaseBegun))
	d.removeFromIndex(h)
	return release, nil
}

// sendRelease passes the release to the nodes. If the next waiter wants exactly the same names,
// the lock is passed on to it without asking a node, or its attempt begins in the same call: the
// first bytes leave before any goroutine wakes.
func (d *Host) sendRelease(h *heldLease, streak waitqueue.Streak) (*redlock.PendingRelease, error) {
	if !streak.Yields {
		if next := d.Queue.ClaimNext(&h.waiter, streak, h.wasRetained()); next != nil {
			if release := d.handOver(h, next); release != nil {
				return release, nil
			}
		}
	}
	return h.lease.BeginRelease()
}

// handOver passes the lock on to the next waiter, or begins its attempt. It returns nil if that
// is impossible, or if the waiter's client is gone. Nothing was done then, and the waiter is back
// in the queue.
func (d *Host) handOver(h *heldLease, next *waitqueue.Waiter) *redlock.PendingRelease {
	request := next.Request()
	if isClosed(request.StopRetrying) {
		d.Queue.Unclaim(next)
		return nil
	}
	release, begun, err := h.lease.HandOver(request)
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

// rememberLossFor is how long a connection that stays open can ask about a lost lease.
const rememberLossFor = time.Hour

// leaseLost is called when a lease is lost. The client is told before the deadline, and before
// anything that could block. The lease stays in the queue until the deadline, as its client
// may still be stopping.
func (d *Host) leaseLost(h *heldLease, lease *redlock.Lease) {
	d.Journal.Lost(h.number, lease.Reason())
	if h.isRetained() {
		d.lostRetained(h)
		return
	}
	d.perform(h, h.onLost(d.Clock()))
	if left := lease.Validity(); left > 0 && lease.Reason() != redlock.LostForced {
		d.leaveQueueAfter(h, left)
	} else {
		d.perform(h, h.on(deadlinePassed))
	}
	d.recorder.Lost(lease.Reason())
	d.logLost(h, lease)
}

// leaveQueueAfter takes a lost lease out of the queue after a delay.
func (d *Host) leaveQueueAfter(h *heldLease, delay time.Duration) {
	d.timers.After(delay, func() { d.perform(h, h.on(deadlinePassed)) })
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
	if !h.on(lossKept).has(keepLoss) {
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

// clientEnd is the end of a client's connection, with what decides about one of its leases.
type clientEnd struct {
	hold     ipc.Hold
	lost     bool // the lease was lost before
	lingers  bool // it has linger=
	cut      bool // the daemon cut the connection: the client may be at work, and not know it yet
	stopping bool // the daemon stops: the client can resume the lease with the next one
}

// endAction is what happens to a lease when its client's connection ends.
type endAction uint8

const (
	keepLease    endAction = iota // its ttl, its process, or the next daemon decides
	letExpire                     // it stays taken until the deadline that the client was told
	lingerFirst                   // it is released after linger=, unless the client resumes it
	releaseNow                    // it is released
	forgetLoss                    // nobody is left to ask about it
	forgetForced                  // likewise; what FORCE left of it is released, as its client has stopped
)

// action decides. No lease of a client that may be at work is released.
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

// clientGone does what the policy says (clientEnd) about a lease whose connection has ended.
// cut: the daemon ended the connection.
func (d *Host) clientGone(h *heldLease, cut bool) {
	end := clientEnd{hold: h.hold, lost: h.lease.Err() != nil, lingers: h.linger() > 0, cut: cut, stopping: d.Stopping.Load()}
	switch end.action() {
	case letExpire:
		d.endCut(h)
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
		d.timers.After(left, func() { d.perform(h, h.on(dropped)) })
		return
	}
	d.perform(h, h.on(dropped))
}

// releaseAfterLinger releases a lease without a client, at once or after linger=. The begin of
// linger= is recorded: a daemon that starts next continues it.
func (d *Host) releaseAfterLinger(h *heldLease) {
	if h.linger() > 0 {
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
	d.timers.After(then+h.linger()-d.Clock(), func() {
		if !h.disconnectedAgain(nth) {
			d.releaseAbandoned(h)
		}
	})
}

// endCut ends a lease whose client may be at work until the deadline that it was told.
func (d *Host) endCut(h *heldLease) {
	if h.minLeft(d.Clock()) == 0 {
		d.letExpire(h)
		return
	}
	h.notBefore(h.lease.Deadline())
	d.releaseAbandoned(h)
}

// letExpire stops extending a lease. A client that resumes the lease at the same time is told that it
// is lost. If the lease is released at the same time, it is not lost, and nothing is recorded.
func (d *Host) letExpire(h *heldLease) {
	if h.lease.GiveUp(); h.lease.Reason() == "" {
		return
	}
	d.Journal.Lost(h.number, h.lease.Reason())
	d.logReleased(h, "connection cut")
	h.on(letGo)
	if h.attached() != nil {
		d.perform(h, h.onLost(d.Clock()))
	} else {
		d.forgetLostLater(h)
	}
	d.leaveQueueAfter(h, max(h.lease.Validity(), 0))
}

// releaseAbandoned releases a lease whose client is gone. It does not wait: the lanes repeat
// the release until every node has answered or the lock has expired. While the daemon stops it
// does nothing, because the client may be at work.
func (d *Host) releaseAbandoned(h *heldLease) {
	if d.Stopping.Load() {
		return
	}
	switch do := h.onClientGone(); {
	case do.has(beginRelease):
		if d.keepTaken(h) > 0 {
			d.Journal.Kept(h.number, 0)
			return
		}
		if d.retain(h, nil) {
			d.logReleased(h, goneReason(h))
			return
		}
		d.releaseWithoutClient(h, goneReason(h))
	case do != 0: // it was lost before
		d.perform(h, do)
		d.removeFromIndex(h)
	}
}

// releaseWithoutClient releases a lease whose state is releasing, for a reason. If it turns out to
// be lost, nobody is left to ask about it.
func (d *Host) releaseWithoutClient(h *heldLease, reason string) {
	release, err := d.release(h, 0)
	if err != nil {
		d.forget(h)
		return
	}
	d.forgetWhenReleased(h, release)
	d.Log.Debug("lease released: its client is gone", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID, "reason", reason)
	d.logReleased(h, reason)
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
	mode := modeOf(h.mode().Shared)
	if h.waiter.Kind.Slots > 0 {
		mode = "slots"
	}
	return logging.Lease{Lock: h.waiter.Label(), Fence: lease.Fence(), Mode: mode, UID: h.UID, User: h.User, PID: h.PID}
}
