package session

import (
	"context"
	"errors"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// unlock counts down. After the last count it sends the release before it returns, so that the next
// request of this connection and the next waiter come after the release. The answer waits for a
// quorum, unless the lock was passed on.
func (s *session) unlock(call *server.Call) server.Work {
	switch names, settled := s.releasedBefore(call); {
	case settled:
		return reply(call, ok(call).Strs("lock", names...))
	case names != nil:
		return reply(call, ok(call).Strs("lock", names...).Int("pending", 1).
			Say("the daemon was restarted: the release is repeated until the nodes answer or the lock has expired"))
	}
	h, err := s.find(call)
	if err != nil {
		return s.refuse(call, err)
	}
	u, err := s.host.undoLock(h, call.Number)
	switch {
	case err != nil:
		h.clientStopped()
		return s.refuse(call, err)
	case u.left > 0:
		return s.countedDown(call, h, u.left)
	case u.kept > 0:
		return s.keptTaken(call, h, u.kept)
	}
	s.host.logReleased(h, "unlock")
	work := &unlockWork{s, call, h, u.release}
	if u.release.Passed() {
		work.Run() // a pass waits for no node
		return nil
	}
	return work
}

// keptTaken answers at once. The lease stays taken until min= has passed.
func (s *session) keptTaken(call *server.Call, h *heldLease, left time.Duration) server.Work {
	if h.number != 0 {
		call.RecordingAnswer()
		s.host.Journal.Kept(h.number, call.Number)
	}
	return reply(call, ok(call).Strs("lock", h.names()...).Ms("kept", left).
		Say("it stays taken for kept= (min= of its LOCK); nobody holds it"))
}

// countedDown answers if other LOCKs of the owner still count on the lease. If the lease was lost,
// no LOCK counts any more.
func (s *session) countedDown(call *server.Call, h *heldLease, left int) server.Work {
	if err := h.lease.Err(); err != nil {
		return s.refuse(call, err)
	}
	s.host.noteCount(call, h)
	return reply(call, ok(call).Strs("lock", h.names()...).Int("count", int64(left)))
}

// unlockWork is an UNLOCK under way.
type unlockWork struct {
	s       *session
	call    *server.Call
	h       *heldLease
	release *redlock.PendingRelease
}

// Run answers when the nodes have answered. It records the answer separately from the release: if
// the daemon freezes before the answer, the record of the lease must stay for a later daemon.
func (u *unlockWork) Run() {
	ctx, cancel := u.waitContext()
	defer cancel()
	err := u.release.Wait(ctx)
	if d := u.s.host; u.release.Everywhere() {
		d.forgetWithAnswer(u.call, u.h.number)
	} else {
		d.noteAnswered(u.call, u.h.number)
		defer d.forgetWhenReleased(u.h, u.release)
	}
	switch {
	case err == nil:
		u.call.Reply(ok(u.call).Strs("lock", u.h.names()...))
	case errors.Is(err, redlock.ErrNoQuorum) && ctx.Err() != nil:
		u.call.Reply(ok(u.call).Strs("lock", u.h.names()...).Int("pending", 1).
			Say("the release continues: it is repeated until the nodes answer or the lock has expired"))
	case errors.Is(err, redlock.ErrNoQuorum):
		u.call.Reply(ok(u.call).Strs("lock", u.h.names()...).Int("pending", 1).
			Say("too few nodes have answered yet: the release is repeated until they do or the lock has expired"))
	default:
		u.s.refuse(u.call, err)
	}
}

// waitContext returns a context that ends the wait for the nodes after wait=. Without wait=, only
// the node timeout bounds it. The release is already in the state file and in the lanes, so wait=0
// loses nothing.
func (u *unlockWork) waitContext() (context.Context, context.CancelFunc) {
	if !u.call.Has(ipc.OptWait) || u.call.Wait == ipc.Forever {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), u.call.Wait)
}

// forgetWithAnswer removes the record of a lease together with the record of its UNLOCK. The answer
// follows at once. If only the lease were removed, the next daemon would repeat the UNLOCK and
// answer NOTHELD.
func (d *Host) forgetWithAnswer(call *server.Call, number uint64) {
	if !d.Journal.IsOpen() || number == 0 {
		return
	}
	call.RecordingAnswer()
	d.Journal.Forgotten(number, call.Number)
}

// noteAnswered records only the answer. The record of the lease is removed later.
func (d *Host) noteAnswered(call *server.Call, number uint64) {
	if !d.Journal.IsOpen() || number == 0 {
		return
	}
	call.RecordingAnswer()
	d.Journal.Answered(call.Number)
}
