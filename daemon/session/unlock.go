package session

import (
	"context"
	"errors"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// unlock counts down, and after the last count sends the release at once, so
// that what comes next, on this connection and in the queue, comes behind it; its
// answer waits for a quorum.
func (s *session) unlock(call *server.Call) server.Work {
	if names := s.releasedBefore(call); names != nil {
		return reply(call, ok(call).Strs("lock", names...).Int("pending", 1).
			Say("the daemon was restarted: the release is repeated until the nodes answer or the lock has expired"))
	}
	h, err := s.find(call)
	if err != nil {
		return s.refuse(call, err)
	}
	left := h.countDown()
	if s.host.settleReentrancy(h); left > 0 {
		return s.countedDown(call, h, left)
	}
	release, err := s.host.release(h, call.Number)
	if err != nil {
		h.clientStopped()
		return s.refuse(call, err)
	}
	s.host.forget(h)
	s.host.logReleased(h, "unlock")
	return &unlockWork{s, call, h, release}
}

// countedDown answers where others of the same owner hold on. The loss of the
// lease has ended all counts.
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

// Run answers when the nodes have, and records the answer on its own. If the daemon freezes
// before the answer, the record of the lease must stay for a later daemon.
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
			Say("the release goes on: it is repeated until the nodes answer or the lock has expired"))
	case errors.Is(err, redlock.ErrNoQuorum):
		u.call.Reply(ok(u.call).Strs("lock", u.h.names()...).Int("pending", 1).
			Say("too few nodes answered yet: the release is repeated until they do or the lock has expired"))
	default:
		u.s.refuse(u.call, err)
	}
}

// waitContext returns a context that ends the wait for the nodes after wait=. Without wait=
// only the node timeout bounds the wait. At the time of the call the release is in the state
// file and in the lanes, so wait=0 loses nothing.
func (u *unlockWork) waitContext() (context.Context, context.CancelFunc) {
	if !u.call.Has(ipc.OptWait) || u.call.Wait == ipc.Forever {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), u.call.Wait)
}

// forgetWithAnswer ends what is noted of a lease together with the UNLOCK that gave it
// back, whose answer is to follow at once: without the lease the next process would
// answer NOTHELD to an UNLOCK that is not noted as answered.
func (d *Host) forgetWithAnswer(call *server.Call, number uint64) {
	if !d.Journal.IsOpen() || number == 0 {
		return
	}
	call.RecordingAnswer()
	d.Journal.Forgotten(number, call.Number)
}

// noteAnswered notes the answer alone: what is noted of the lease ends later.
func (d *Host) noteAnswered(call *server.Call, number uint64) {
	if !d.Journal.IsOpen() || number == 0 {
		return
	}
	call.RecordingAnswer()
	d.Journal.Answered(call.Number)
}
