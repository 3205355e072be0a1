package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// unlock counts down. After the last count it sends the release before it returns, so that the next
// request of this connection and the next waiter come after the release. The answer waits for a
// quorum, unless the lock was passed on.
func (s *session) unlock(call *server.Call) server.Work {
	// An earlier process may have begun the release, and not have answered.
	switch before := s.replays[call.Number]; {
	case !call.Replayed:
	case before.settled:
		return reply(call, call.OK().Strs("lock", before.released...))
	case before.released != nil:
		return reply(call, call.OK().Strs("lock", before.released...).Int("pending", 1).
			Say("the daemon was restarted: the release is repeated until the nodes answer or the lock has expired"))
	}
	h, err := s.find(call)
	if err != nil {
		return s.refuse(call, err)
	}
	d := s.host
	left, u, err := d.undoLock(h, call)
	switch {
	case err != nil:
		h.releaseRevoked()
		return s.refuse(call, err)
	case left > 0:
		if err := h.lease.Err(); err != nil { // it was lost, so no LOCK counts any more
			return s.refuse(call, err)
		}
		return reply(call, call.OK().Strs("lock", h.Waiter.Names...).Int("count", int64(left)))
	case u.kept > 0:
		return reply(call, call.OK().Strs("lock", h.Waiter.Names...).Ms("kept", u.kept).
			Say("it stays taken for kept= (min= of its LOCK); nobody holds it"))
	}
	d.logReleased(h, "unlock")
	if u.release.Passed() {
		s.finishUnlock(call, h, u.release) // a pass waits for no node
		return nil
	}
	return workFunc(func() { s.finishUnlock(call, h, u.release) })
}

// finishUnlock answers when the nodes have answered, or when wait= has passed. Without wait=, only the
// node timeout bounds it. The release is already in the state file and in the lanes, so wait=0 loses
// nothing.
func (s *session) finishUnlock(call *server.Call, h *heldLease, release *redlock.PendingRelease) {
	ctx := context.Background()
	if call.Has(ipc.OptWait) && call.Wait != ipc.Forever {
		bounded, cancel := context.WithTimeout(ctx, call.Wait)
		defer cancel()
		ctx = bounded
	}
	err := release.Wait(ctx)
	d, everywhere := s.host, release.Everywhere()
	if h.number != 0 {
		call.RecordingAnswer()
		if everywhere {
			d.Journal.Forgotten(h.number, call.Number) // and the UNLOCK: the next daemon would repeat it, and answer NOTHELD
		} else {
			d.Journal.Answered(call.Number) // the record of the lease stays for a later daemon, even if this one freezes before the answer
		}
	}
	if !everywhere {
		defer d.forgetWhenReleased(h, release)
	}
	switch {
	case err == nil:
		call.Reply(call.OK().Strs("lock", h.Waiter.Names...))
	case errors.Is(err, redlock.ErrNoQuorum) && ctx.Err() != nil:
		call.Reply(call.OK().Strs("lock", h.Waiter.Names...).Int("pending", 1).
			Say("the release continues: it is repeated until the nodes answer or the lock has expired"))
	case errors.Is(err, redlock.ErrNoQuorum):
		call.Reply(call.OK().Strs("lock", h.Waiter.Names...).Int("pending", 1).
			Say("too few nodes have answered yet: the release is repeated until they do or the lock has expired"))
	default:
		s.refuse(call, err)
	}
}

// undoLock undoes the latest LOCK that counts on a lease, for an UNLOCK, or for a LOCK that fails after
// all. left is how many still count. If none does, no client holds the lease any more: see endHold. If the
// lease stays taken, the call is recorded as answered, and the answer must follow.
func (d *Host) undoLock(h *heldLease, call *server.Call) (left int, u holdEnd, err error) {
	stayed, changed := false, true
	for changed {
		if stayed = locked(d, func() bool { return d.staysLocked(h) }); stayed && h.number != 0 {
			call.RecordingAnswer() // not while the change is recorded: it may block
		}
		u = d.endHold(h, locktable.LastUnlock, func() (by uint64, happens bool) {
			if changed = d.staysLocked(h) && !stayed; changed {
				return 0, false
			}
			left = d.table.CountDown(&h.Lease)
			return call.Number, left == 0
		})
	}
	switch {
	case left > 0, u.kept > 0, u.release != nil:
		return left, u, nil
	case u.err != nil:
		err = u.err
	case h.lease.Err() != nil: // it was lost
		err = h.lease.Err()
	default:
		err = fmt.Errorf("%s: %w", h.Waiter.Label(), redlock.ErrReleased)
	}
	if stayed {
		d.Journal.Answered(call.Number)
	}
	return 0, u, err
}

// staysLocked reports whether a lease stays taken after one more UNLOCK.
func (d *Host) staysLocked(h *heldLease) bool { return h.Count() > 1 || d.minLeftLocked(h) > 0 }

// release begins the release of a lease whose state is Releasing, and forgets the lease. It does
// not wait for the nodes. The release was recorded before. It returns an error, and does nothing, if the
// lease was lost.
//
// If the next waiter wants exactly the same names, it passes the lock on without asking a node, or
// begins the waiter's attempt in the same call. The first bytes leave before any goroutine wakes.
func (d *Host) release(h *heldLease) (release *redlock.PendingRelease, err error) {
	var next *locktable.Waiter
	d.inQueue(&h.Waiter, func(q *locktable.Queue) {
		next = q.ClaimNext(&h.Waiter, h.lease.Since(), h.lease.Wanted(), d.Clock())
	})
	if next != nil {
		release = d.handOver(h, next)
	}
	if release == nil {
		if release, err = h.lease.BeginRelease(); err != nil {
			d.apply(h, locktable.ReleaseRefused)
			return nil, err
		}
	}
	d.apply(h, locktable.ReleaseBegun)
	return release, nil
}

// handOver passes the lock on to the next waiter, or begins its attempt. If that is impossible, or
// the waiter's client is gone, it returns nil, and the waiter is back in the queue.
func (d *Host) handOver(h *heldLease, next *locktable.Waiter) *redlock.PendingRelease {
	request := next.Request()
	var release *redlock.PendingRelease
	var begun *redlock.PendingAttempt
	if !isClosed(request.StopRetrying) {
		release, begun, _ = h.lease.HandOver(request) // an error: release is nil
	}
	delivered := false
	d.inQueue(next, func(q *locktable.Queue) {
		if release == nil {
			q.Unclaim(next)
		} else {
			delivered = q.Deliver(next, begun)
		}
	})
	if release != nil && !delivered {
		begun.Abandon()
		next.Undelivered()
	}
	return release
}

// forgetWhenReleased deletes the record of a released lease when all nodes have answered. Until
// then, and at most until the lock has expired, the next daemon repeats the release on the other
// nodes. It does not wait.
func (d *Host) forgetWhenReleased(h *heldLease, release *redlock.PendingRelease) {
	release.Then(func(unanswered int) {
		if h.number != 0 {
			d.releasedExcept(h.number, unanswered)
		}
	})
}

// releasedExcept decides how long the record of a release stays that unanswered nodes have not
// confirmed.
func (d *Host) releasedExcept(number uint64, unanswered int) {
	switch nodes := &d.Cfg.Quorum; {
	case unanswered > len(nodes.Nodes)-nodes.Needed():
		d.forgetAfterMaxTTL(number)
	case unanswered == 0:
		d.Journal.Forgotten(number, 0)
	case d.pendingReleases.Add(1) > maxPendingReleases:
		d.pendingReleases.Add(-1)
		d.Journal.Forgotten(number, 0)
	default:
		d.Journal.ForgottenAfter(number, nodes.MaxTTL, func() { d.pendingReleases.Add(-1) })
	}
}

// maxPendingReleases bounds the records of releases that a quorum has confirmed. Otherwise, if a
// node answers all releases with an error, each UNLOCK would make the state file longer. If a
// quorum of nodes does so, no client gets a lock, and the file does not grow.
const maxPendingReleases = 10000
