package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/process"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// resumeWork is a RESUME under way: a client continues its lease on another connection.
type resumeWork struct {
	s            *session
	call         *server.Call
	h            *heldLease
	repeatedLock *lockRequest // a repeated LOCK (same id=) that takes its lease over; nil: a RESUME
}

// resume takes a lease over from another connection: one that a restart did not keep, one whose end
// was not noticed yet, or one that ended less than linger= ago. The client must know the id, and be the
// user that took the lease.
func (s *session) resume(call *server.Call) server.Work {
	h := s.host.leaseByID(call.Lease)
	switch {
	case h == nil, s.uid != h.UID && s.uid != 0, !slices.Equal(call.Names, h.Waiter.Names):
		return s.refuse(call, errNoLease)
	case call.Owner != h.Owner:
		return s.refuse(call, badOption("owner=%s: %s was taken with another owner=, which RESUME needs, too", call.Owner, h.Waiter.Label()))
	}
	if err := h.lease.Err(); err != nil {
		return s.refuse(call, err)
	}
	return &resumeWork{s: s, call: call, h: h}
}

// Run answers once a quorum has confirmed the lease.
func (r *resumeWork) Run() {
	var err error
	if r.repeatedLock == nil {
		// A RESUME can wait on a connection that its client has closed, and run after the RESUME on the
		// client's next connection. It would take the lease from that one and release it at once.
		if err = context.Cause(r.call.Context()); r.s.conn.HungUp() {
			err = server.ErrGone
		}
	}
	if err == nil {
		err = r.take()
	}
	if err == nil {
		r.noteTaken()
		err = r.confirm()
	}
	if err == nil && !r.h.OfProcess && r.s.host.reporter(r.h) != r.s {
		err = errNoLease // another RESUME was faster, and has the lease
	}
	if err != nil {
		r.s.refuse(r.call, err)
		return
	}
	if r.h.number != 0 {
		r.call.RecordingAnswer()
	}
	r.s.host.noteConnection(r.s, r.h, r.call.Number)
	answer := r.s.host.grantFields(r.call, r.h)
	if !r.call.Reentrant { // else it has the count
		r.s.host.countField(answer, r.h)
	}
	if r.repeatedLock != nil {
		answer.Str("again", "yes")
	}
	r.call.Reply(answer)
}

// noteTaken records the lease's new connection before the nodes are asked. That connection has the
// lease even if they do not confirm it, and the end of the earlier connection does not end the
// client.
func (r *resumeWork) noteTaken() {
	if r.s.host.reporter(r.h) == r.s { // else another RESUME was faster
		r.s.host.noteConnection(r.s, r.h, 0)
	}
}

// confirmRetryInterval is the pause after a failed confirmation, before the nodes are asked again.
const confirmRetryInterval = 100 * time.Millisecond

// confirm waits until a quorum has confirmed the lease. A repeated LOCK waits for a quorum as any
// LOCK does. If it is refused, its lease is released.
func (r *resumeWork) confirm() error {
	err := r.h.lease.Extend(r.call.Context(), 0)
	if r.repeatedLock == nil {
		return err
	}
	for errors.Is(err, redlock.ErrNoQuorum) && r.repeatedLock.pause(confirmRetryInterval) {
		next := r.h.lease.Extend(r.call.Context(), 0)
		if errors.Is(next, redlock.ErrLost) {
			break // there was no quorum for the whole ttl
		}
		err = next
	}
	if err != nil && !r.s.host.Stopping.Load() { // else the client can repeat it with the next daemon
		r.undo()
	}
	return err
}

// pause waits for the duration, or less, and reports whether the request continues to wait.
func (a *lockRequest) pause(duration time.Duration) bool {
	timer := time.NewTimer(min(duration, a.timeLeft()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return a.timeLeft() > 0
	case <-a.holderGone():
	case <-a.call.Context().Done():
	}
	return false
}

// undo undoes the LOCK, and releases the lease if no other LOCK counts on it.
func (r *resumeWork) undo() {
	d, h := r.s.host, r.h
	if d.reporter(h) != r.s {
		return // another client that knows the id has resumed it meanwhile
	}
	if _, u, _ := d.undoLock(h, r.call); u.release != nil { // else other LOCKs count, min= has not passed, or it was lost
		d.forgetWhenReleased(h, u.release)
		d.logReleased(h, "request cancelled")
	}
}

// take moves the lease to this connection. If the connection ends while the nodes are asked, the
// lease is released.
func (r *resumeWork) take() error {
	h, s := r.h, r.s
	if h.OfProcess {
		return r.moveLossReport()
	}
	d := s.host
	d.mu.Lock()
	replaced, moved, err := d.table.Resume(&h.Lease, &s.client)
	if moved {
		if h.holderGone, h.conn = false, s.number; h.delays != nil {
			h.delays.since = 0
		}
	}
	d.mu.Unlock()
	d.forgetReplaced(replaced)
	if !moved {
		return r.refusal(err)
	}
	d.updateOwner(h)
	if h.hold == ipc.HoldConn {
		h.lease.Keep()
	}
	return nil
}

// refusal returns the client's error for an error of locktable.Table, or nil.
func (r *resumeWork) refusal(err error) error {
	switch err {
	case locktable.ErrTaken:
		return fmt.Errorf("%s: %w", r.h.Waiter.Label(), errOwnerHolds)
	case locktable.ErrClosed:
		return server.ErrGone
	case locktable.ErrEnded:
		return errNoLease
	}
	return err
}

// moveLossReport makes this connection, and no other, report the loss of a process's lease. If the
// process has ended, nobody holds the lease: it lingers, and is released.
func (r *resumeWork) moveLossReport() error {
	h, s := r.h, r.s
	if p := h.process(); p.hasEnded() {
		return fmt.Errorf("%w: process %d, its holder, has ended", errNoLease, p.pid)
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	err := s.host.table.MoveReport(&h.Lease, &s.client)
	if err == nil {
		h.conn = s.number
	}
	return r.refusal(err)
}

// noteConnection records that a connection has a lease, or reports its loss, together with the answer to
// the request by (0: none).
func (d *Host) noteConnection(s *session, h *heldLease, by uint64) {
	d.Store.Prefer(&s.stored)
	d.record(h, func() uint64 { return by })
}

// takeUnclaimed returns the lease that a LOCK got before the restart. It returns nil if there is
// none, if the lease has ended, if a connection has it, or if another living process uses the same
// id=. Several LOCKs that count on the lease may be repeated at once.
func (d *Host) takeUnclaimed(a *lockRequest) *heldLease {
	if a.ID == "" || a.hold != ipc.HoldConn || d.table.Unclaimed.Load() == 0 {
		return nil
	}
	d.mu.Lock()
	h := leaseOf(d.table.FindUnclaimed(&a.Lease))
	d.mu.Unlock()
	if h == nil || h.PID != a.PID && mayLive(h.PID) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.table.TakeUnclaimed(&a.Lease, &h.Lease) {
		return nil
	}
	return h
}

// mayLive reports whether a process with this pid may be alive, and so may use the lease.
func mayLive(pid int) bool {
	if pid == 0 {
		return false
	}
	fd, err := process.Open(pid)
	if err != nil {
		return errors.Is(shortageError(err), errShortage)
	}
	defer process.Close(fd)
	return process.IsAlive(fd)
}
