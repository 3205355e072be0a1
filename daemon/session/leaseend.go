package session

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// updateOwner makes waiters wait for the present owner of a lease. The owner is read inside queueMu,
// so the later of two concurrent calls records the later owner.
func (d *Host) updateOwner(h *heldLease) {
	d.inQueue(&h.Waiter, func(q *locktable.Queue) {
		d.mu.Lock()
		owner, isKept := h.Owns(), h.Life.State == locktable.Kept
		d.mu.Unlock()
		q.ChangeOwner(&h.Waiter, owner, isKept)
	})
}

// forgetAfterMaxTTL deletes the record of a release after max_ttl, when the lock has certainly
// expired. It does not wait.
func (d *Host) forgetAfterMaxTTL(number uint64) {
	d.Journal.ForgottenAfter(number, d.Cfg.Quorum.MaxTTL, nil)
}

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

// clientGone does what is due for a lease whose connection has ended. cut means that the daemon ended
// the connection.
func (d *Host) clientGone(h *heldLease, client *locktable.Client, cut bool) {
	d.clientEnded(h, client, locktable.ClientEnd{Outlives: h.hold != ipc.HoldConn, Lost: h.lease.Err() != nil, Cut: cut, Stopping: d.Stopping.Load()})
}

// processEnded does what is due for a lease of a process that has ended.
func (d *Host) processEnded(h *heldLease) {
	lost := h.lease.Err() != nil
	if d.clientEnded(h, h.Holder(), locktable.ClientEnd{Process: true, Lost: lost, Stopping: d.Stopping.Load()}); lost {
		d.apply(h, locktable.ProcessEnded)
	}
}

func (d *Host) clientEnded(h *heldLease, client *locktable.Client, end locktable.ClientEnd) {
	end.Lingers = h.linger() > 0
	d.perform(h, &performed{client: client, Due: locktable.Due{Effects: end.Effects()}})
}

// endCut ends a lease of a connection that the daemon cut. Its client may work until the last
// deadline that it was given.
func (d *Host) endCut(h *heldLease, client *locktable.Client) {
	if d.minLeft(h) == 0 {
		d.letExpire(h)
		return
	}
	d.keepUntil(h, h.lease.Deadline())
	d.releaseAbandoned(h, client)
}

// letExpire stops extending a lease. A client that resumes the lease at the same time gets LOST. If
// the lease is released at the same time, it is not lost, and nothing is recorded.
func (d *Host) letExpire(h *heldLease) {
	if h.lease.LoseSilently(); h.lease.Reason() != "" {
		d.recordLoss(h, h.lease)
		d.apply(h, locktable.ExtensionsEnded)
	}
}

// releaseAbandoned releases a lease whose client is gone, unless another one has resumed it since, even
// if that one is gone, too. It does not wait: the lanes repeat the release until every node has
// answered or the lock has expired. While the daemon stops it does nothing, because the client may
// still work.
func (d *Host) releaseAbandoned(h *heldLease, client *locktable.Client) {
	if d.Stopping.Load() {
		return
	}
	var p performed
	d.mu.Lock()
	if h.Holder() == client {
		p.Due = d.table.Apply(&h.Lease, locktable.ClientIsGone)
	}
	d.mu.Unlock()
	d.perform(h, &p)
	reason := "connection ended"
	if h.OfProcess {
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
		d.Log.Debug("lease released: its client is gone", "lock", h.Waiter.Label(), "user", h.User, "pid", h.PID, "reason", reason)
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
	if h.Waiter.Kind.Slots > 0 {
		mode = "slots"
	}
	facts := logging.Lease{Lock: h.Waiter.Label(), Mode: mode, UID: h.UID, User: h.User, PID: h.PID}
	if lease != nil {
		facts.Fence = lease.Fence()
	}
	return facts
}
