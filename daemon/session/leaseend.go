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
		d.releasedWithoutClient(h, d.endHold(h, locktable.MinPassed, nil), "min passed")
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

// holderEnded does what is due for a lease whose process has ended.
func (d *Host) holderEnded(h *heldLease) {
	lost := h.lease.Err() != nil
	if d.clientEnded(h, h.Holder(), locktable.ClientEnd{Process: true, Lost: lost, Stopping: d.Stopping.Load()}); lost {
		d.apply(h, locktable.ProcessEnded)
	}
}

func (d *Host) clientEnded(h *heldLease, client *locktable.Client, end locktable.ClientEnd) {
	end.Lingers = h.linger() > 0
	d.endWithout(h, client, end.Ending())
}

// endWithout ends a lease whose client is gone.
func (d *Host) endWithout(h *heldLease, client *locktable.Client, ending locktable.Ending) {
	switch ending {
	case locktable.LeaveAlone:
	case locktable.EndRevoked:
		h.releaseRevoked()
		d.forgetLostLater(h)
	case locktable.EndLoss:
		d.forgetLostLater(h)
	case locktable.LetExpire:
		d.endCut(h, client)
	case locktable.Linger:
		d.record(h, func() (by uint64) { // so that the next daemon continues it
			h.delays.since = d.Clock()
			return 0
		})
		d.releaseAfterLinger(h, client)
	case locktable.Release:
		d.releaseAbandoned(h, client)
	case locktable.ReleaseUnclaimed:
		d.timers.After(d.minLeft(h), func() { d.releaseAbandoned(h, client) })
	}
}

// releaseAfterLinger releases a lease when linger= has passed since it lost its client.
func (d *Host) releaseAfterLinger(h *heldLease, client *locktable.Client) {
	since := locked(d, func() time.Duration { return h.delays.since })
	d.timers.After(since+h.linger()-d.Clock(), func() { d.releaseAbandoned(h, client) })
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
		d.lose(h, h.lease, locktable.ExtensionsEnded)
	}
}

// holdEnd is what became of a lease that no client holds any more. It is zero if the event came too late.
type holdEnd struct {
	kept    time.Duration           // how long it stays taken (min=); 0: it does not
	release *redlock.PendingRelease // its release, which has begun
	err     error                   // its release cannot begin, because the lease was lost
}

// endHold applies the event after which no client holds a lease, unless may refuses that, which is called
// under mu (nil: it happens). may also returns the request that asks for it, and is answered unless a
// release begins; 0: none. With min=, the lease stays taken, and the keeper still extends it. Otherwise its
// release begins: see release. All of it is recorded first.
func (d *Host) endHold(h *heldLease, event locktable.Event, may func() (by uint64, happens bool)) (u holdEnd) {
	var due locktable.Due
	d.record(h, func() (answered uint64) {
		by, happens := uint64(0), true
		if may != nil {
			by, happens = may()
		}
		if !happens {
			return by
		}
		if u.kept = d.minLeftLocked(h); u.kept > 0 && h.Life.State == locktable.Held {
			event = locktable.MinNotPassed
		}
		switch due = d.table.Apply(&h.Lease, event); {
		case due.Has(locktable.DelayRelease):
			return by
		case due.Has(locktable.BeginRelease):
			h.releasedBy = by
		}
		u.kept = 0
		return 0
	})
	d.perform(h, due, nil)
	if due.Has(locktable.BeginRelease) {
		u.release, u.err = d.release(h)
	}
	return u
}

// releaseAbandoned releases a lease whose client is gone, unless another one has resumed it since, even
// if that one is gone, too. It does not wait: the lanes repeat the release until every node has
// answered or the lock has expired. While the daemon stops it does nothing, because the client may
// still work.
func (d *Host) releaseAbandoned(h *heldLease, client *locktable.Client) {
	if d.Stopping.Load() {
		return
	}
	u := d.endHold(h, locktable.ClientIsGone, func() (uint64, bool) { return 0, h.Holder() == client })
	reason := "connection ended"
	if h.OfProcess {
		reason = "process ended"
	}
	d.releasedWithoutClient(h, u, reason)
}

// releasedWithoutClient logs how the release of a lease without a client began, if it did. If the lease
// turned out to be lost, it is forgotten, because no client can ask about it.
func (d *Host) releasedWithoutClient(h *heldLease, u holdEnd, reason string) {
	switch {
	case u.err != nil:
		d.forget(h)
	case u.release != nil:
		d.forgetWhenReleased(h, u.release)
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
