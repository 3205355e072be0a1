package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

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
// was not noticed yet, or one that ended less than linger= ago.
func (s *session) resume(call *server.Call) server.Work {
	h, err := s.resumable(call)
	if err != nil {
		return s.refuse(call, err)
	}
	return &resumeWork{s: s, call: call, h: h}
}

// resumable returns the lease that the client asks for, if it knows the id and is the user
// that took it.
func (s *session) resumable(call *server.Call) (*heldLease, error) {
	h := s.host.leaseByID(call.Lease)
	switch {
	case h == nil, s.uid != h.UID && s.uid != 0, !slices.Equal(call.Names, h.waiter.Names):
		return nil, errNoLease
	case call.Owner != h.Owner:
		return nil, badOption("owner=%s: %s was taken with another owner=, which RESUME needs, too", call.Owner, h.waiter.Label())
	}
	return h, h.lease.Err()
}

// Run answers once a quorum has confirmed the lease.
func (r *resumeWork) Run() {
	err := r.isWanted()
	if err == nil {
		err = r.take()
	}
	if err == nil {
		r.noteTaken()
		err = r.confirm()
	}
	if err == nil && r.h.process == nil && r.s.host.reporter(r.h) != r.s {
		err = errNoLease // another RESUME was faster, and has the lease
	}
	if err != nil {
		r.s.refuse(r.call, err)
		return
	}
	r.s.host.noteResumed(r.s, r.call, r.h)
	answer := r.answer()
	if r.repeatedLock != nil {
		answer.Str("again", "yes")
	}
	r.call.Reply(answer)
}

// isWanted returns an error if the lease must not be taken over. A RESUME can wait on a connection
// that its client has closed, and run after the RESUME on the client's next connection. It would
// take the lease from that connection and release it at once.
func (r *resumeWork) isWanted() error {
	if r.repeatedLock != nil {
		return nil
	}
	if r.s.conn.HungUp() {
		return server.ErrGone
	}
	return context.Cause(r.call.Context())
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
	switch left, p, err := d.undoLock(h, 0); {
	case err != nil: // it was lost, and LOST was sent or will be
	case left > 0:
		d.noteCount(r.call, h)
	case p.kept > 0:
		d.Journal.Kept(h.number, 0)
	default:
		d.forgetWhenReleased(h, p.release)
		d.logReleased(h, "request cancelled")
	}
}

// answer is the answer of LOCK.
func (r *resumeWork) answer() *ipc.Response {
	d := r.s.host
	if r.call.Reentrant {
		return d.grantFields(r.call, r.h)
	}
	return d.countField(d.grantFields(r.call, r.h), r.h)
}

// take moves the lease to this connection. If the connection ends while the nodes are asked, the
// lease is released.
func (r *resumeWork) take() error {
	h, s := r.h, r.s
	if h.process != nil {
		return r.moveLossReport()
	}
	d := s.host
	d.mu.Lock()
	replaced, moved, err := r.takeLocked()
	d.mu.Unlock()
	for _, lost := range replaced {
		d.forget(lost)
	}
	if !moved {
		return err
	}
	d.updateOwner(h)
	if h.hold == ipc.HoldConn {
		h.lease.Keep()
	}
	return nil
}

// takeLocked moves the lease to the index of this connection, unless it is there. The caller must
// forget the lost leases with the same names (replaced).
func (r *resumeWork) takeLocked() (replaced []*heldLease, moved bool, err error) {
	d, h, s := r.s.host, r.h, r.s
	if h.index == &s.leases {
		return nil, false, nil
	}
	if replaced, err = s.leases.takeOver(h); err != nil {
		return nil, false, err
	}
	if !h.life.MayBeResumed() {
		s.leases.remove(h)
		return replaced, false, errNoLease
	}
	h.index.remove(h)
	h.session, h.index, h.holderGone = s, &s.leases, false // the LOCKs that count on the lease move too
	d.unclaimed.forgetLocked(h)
	return replaced, true, nil
}

// moveLossReport makes this connection, and no other, report the loss of a process's lease. If the
// process has ended, nobody holds the lease: it lingers, and is released.
func (r *resumeWork) moveLossReport() error {
	h, s := r.h, r.s
	if h.process.hasEnded() {
		return fmt.Errorf("%w: process %d, its holder, has ended", errNoLease, h.process.pid)
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if !h.life.MayBeResumed() {
		return errNoLease
	}
	if h.session != nil {
		h.session.removeLeaseLocked(h)
	}
	h.session = s
	s.addProcessLeaseLocked(h)
	return nil
}

// noteResumed records the new connection of the lease, with the answer.
func (d *Host) noteResumed(s *session, call *server.Call, h *heldLease) {
	if h.number != 0 {
		call.RecordingAnswer()
	}
	d.noteConnection(s, h, call.Number)
}

// noteConnection records which connection reports the loss of a lease, together with the answer to
// the request by (0: none). If another connection has resumed the lease meanwhile, that one is
// recorded last.
func (d *Host) noteConnection(s *session, h *heldLease, by uint64) {
	d.Store.Prefer(&s.stored)
	d.Journal.Resumed(h.number, s.number, h.Owner, by)
	if now := d.reporter(h); now != nil && now != s {
		d.noteConnection(now, h, 0)
	}
}

// unclaimedLeases are the leases that a restart left without their connections. If a connection
// broke before its client read the OK, the client repeats the LOCK with the same id= on another
// connection.
type unclaimedLeases struct {
	count atomic.Int64                // the number of leases; every LOCK checks it, and it is mostly 0
	byID  map[unclaimedKey]*heldLease // guarded by the Host's mu
}

// unclaimedKey identifies a repeated LOCK: the same user sends the same LOCK. A user may send the
// same id= for other names.
type unclaimedKey struct {
	uid              int
	owner, id, names string
}

// unclaimedKeyOf returns the key of one id=. Its names are joined by newlines, because they may
// contain commas.
func unclaimedKeyOf(h *heldLease, id string) unclaimedKey {
	return unclaimedKey{h.UID, h.Owner, id, strings.Join(h.waiter.Names, "\n")}
}

// unclaimedKeysLocked returns the keys of all LOCKs that count on h.
func unclaimedKeysLocked(h *heldLease) (all []unclaimedKey) {
	for _, id := range append([]string{h.ID}, h.reentrantIDsLocked()...) {
		if id != "" {
			all = append(all, unclaimedKeyOf(h, id))
		}
	}
	return all
}

// addLocked adds a lease after a restart. It ignores leases with hold=ttl: they outlive their
// connection, and may have been left on purpose, so a later LOCK is not a repeat.
func (o *unclaimedLeases) addLocked(h *heldLease) {
	if h.hold != ipc.HoldConn {
		return
	}
	if o.byID == nil {
		o.byID = map[unclaimedKey]*heldLease{}
	}
	for _, by := range unclaimedKeysLocked(h) {
		o.byID[by] = h
	}
	o.count.Store(int64(len(o.byID)))
}

// takeUnclaimed returns the lease that a LOCK got before the restart. It returns nil if there is
// none, if the lease has ended, if a connection has it, or if another living process uses the same
// id=. Several LOCKs that count on the lease may be repeated at once.
func (d *Host) takeUnclaimed(a *lockRequest) *heldLease {
	if a.ID == "" || a.hold != ipc.HoldConn || d.unclaimed.count.Load() == 0 {
		return nil
	}
	by := unclaimedKeyOf(a.heldLease, a.ID)
	d.mu.Lock()
	h := d.unclaimed.byID[by]
	d.mu.Unlock()
	if h == nil || h.PID != a.PID && mayLive(h.PID) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unclaimed.removeLocked(by) != h { // another repeat was faster
		return nil
	}
	if h.session != nil || h.lease.Err() != nil || h.modeLocked() != a.waiter.Kind {
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

// forgetLocked removes a lease that a connection has again.
func (o *unclaimedLeases) forgetLocked(h *heldLease) {
	if o.count.Load() == 0 {
		return
	}
	for _, by := range unclaimedKeysLocked(h) {
		o.removeLocked(by)
	}
}

func (o *unclaimedLeases) removeLocked(by unclaimedKey) *heldLease {
	h := o.byID[by]
	delete(o.byID, by)
	o.count.Store(int64(len(o.byID)))
	return h
}
