package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// joinFirst handles a LOCK whose owner already holds or wants the name by an earlier LOCK, first.
// The new LOCK repeats first (same id=), or counts up. The error matches ErrReleased if first has
// ended: its lease was just released or lost.
func (a *lockRequest) joinFirst(first *lockRequest) (server.Work, error) {
	if isClosed(first.done) && first.outcome() != nil {
		return nil, redlock.ErrReleased
	}
	d := a.session.host
	if a.call.Reentrant && a.call.Min > 0 && !d.countsRequest(first.heldLease, a.ID) {
		return nil, badOption("min= of a LOCK that counts up: only the first LOCK of the lease can set it")
	}
	d.mu.Lock()
	again, err := d.table.CountUp(&first.Lease, &a.Waiter, a.ID, a.call.Reentrant, a.wasAllowed(), first.alreadyError())
	d.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Waiter.Label(), err)
	}
	if again {
		if err := d.Limits.BeginQuery(a.UID); err != nil { // a repeat counts towards the limit of queries
			return nil, err
		}
		return &boundedWork{a.session, &repeatedLock{lockRequest: a, first: first}}, nil
	}
	return &reentrantLock{lockRequest: a, first: first}, nil
}

// alreadyError returns the error of a second LOCK, which names the owner of the first one.
func (h *heldLease) alreadyError() error {
	if p := h.process(); p != nil {
		return fmt.Errorf("%w by process %d", errAlready, p.pid)
	}
	return errOwnerHolds
}

// countsRequest reports whether the LOCK with the id still counts on a lease: it was neither
// cancelled nor undone by an UNLOCK.
func (d *Host) countsRequest(h *heldLease, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return h.Counts(id)
}

// count returns how many UNLOCKs it takes to end a lease.
func (d *Host) count(h *heldLease) int { return locked(d, h.Count) }

// reentrantLock is a LOCK that counts up. While the owner's first LOCK waits, it waits for that
// LOCK and shares its outcome. If only the first LOCK stops waiting, it continues alone.
type reentrantLock struct {
	*lockRequest
	first *lockRequest
}

// Run waits for one first LOCK after the other. There can be as many as LOCKs that wait together.
func (f *reentrantLock) Run() {
	work := f.answer()
	for another, waits := work.(*reentrantLock); waits; another, waits = work.(*reentrantLock) {
		work = another.answer()
	}
	if work != nil {
		work.Run()
	}
}

// answer waits for the first LOCK. If this LOCK continues alone, it returns the remaining work.
func (f *reentrantLock) answer() server.Work {
	err := f.waitForFirst(f.call.Context())
	if err == nil {
		err = f.first.outcome()
	}
	switch {
	case f.continuesAfter(err):
		return f.rejoinQueue()
	case err != nil:
		f.logRefused(err)
		return f.session.refuse(f.call, err)
	}
	f.session.reportLossHere(f.first.heldLease)
	f.session.host.noteCount(f.call, f.first.heldLease, f.ID)
	f.call.Reply(f.session.host.grantFields(f.call, f.first.heldLease))
	f.session.host.apply(f.first.heldLease, locktable.GrantReported)
	return nil
}

// continuesAfter reports whether a LOCK continues to wait after the LOCK that it had joined ended
// with err. It does not if its own wait has ended too.
func (a *lockRequest) continuesAfter(err error) bool {
	return endsOnlyItself(err) && a.waitLeft() != 0 && !isClosed(a.holderGone()) && a.call.Context().Err() == nil
}

// endsOnlyItself reports whether err ends only the LOCK itself, and not those that joined it: it was
// cancelled, or its wait ended.
func endsOnlyItself(err error) bool {
	return slices.ContainsFunc([]error{server.ErrCancelled, server.ErrGone, server.ErrLate, redlock.ErrHeld, redlock.ErrNoQuorum},
		func(reason error) bool { return errors.Is(err, reason) })
}

// rejoinQueue puts the request into the queue again, or joins another first LOCK. It returns the
// remaining work, if any. The request has passed the limits already, and they do not refuse it now.
func (a *lockRequest) rejoinQueue() server.Work {
	anew, err := a.session.newLockRequest(a.call)
	if err != nil {
		return a.session.refuse(a.call, err)
	}
	anew.Asked, anew.rejoined = a.Asked, true
	return a.session.start(anew)
}

// noteCount records, before the request is answered, that a LOCK counts on a lease.
func (d *Host) noteCount(call *server.Call, h *heldLease, id string) {
	if h.number == 0 {
		return
	}
	call.RecordingAnswer()
	d.record(h, func() (by uint64) {
		h.Answer(id)
		return call.Number
	})
}

// waitForFirst waits for the first LOCK, at most for its own wait=. If it stops waiting, it no
// longer counts. An event that ends both, such as the end of the input, ends the first LOCK and so
// this one.
func (f *reentrantLock) waitForFirst(ctx context.Context) (err error) {
	if isClosed(f.first.done) {
		return nil
	}
	timer := time.NewTimer(f.timeLeft())
	defer timer.Stop()
	select {
	case <-f.first.done:
		return nil
	case <-timer.C:
		err = f.first.notReadyError()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	d := f.session.host
	d.mu.Lock()
	withdrawn := d.table.WithdrawCount(&f.first.Lease, f.ID)
	d.mu.Unlock()
	if withdrawn {
		return err
	}
	<-f.first.done // soon: the lock has been granted
	return nil
}

// repeatedLock repeats a LOCK with the same id=, and gets the same answer. If the repeated LOCK was
// a further one (reentrant=yes), the repeat continues to wait as that one does.
type repeatedLock struct {
	*lockRequest
	first *lockRequest
}

func (r *repeatedLock) Run() {
	var err error
	select {
	case <-r.first.done:
		err = r.first.outcome()
	case <-r.call.Context().Done():
		err = context.Cause(r.call.Context())
	}
	switch {
	case r.ID != r.first.ID && r.continuesAfter(err):
		r.call.Reentrant = true // either of the two may be first in the index
		if work := r.rejoinQueue(); work != nil {
			work.Run()
		}
		return
	case err == nil && !r.session.host.countsRequest(r.first.heldLease, r.ID):
		err = errLockUndone
	}
	if err != nil {
		r.call.Reply(responseOf(r.call, err))
		return
	}
	r.session.reportLossHere(r.first.heldLease)
	r.call.Reply(r.session.host.grantFields(r.call, r.first.heldLease).Str("again", "yes"))
	r.session.host.apply(r.first.heldLease, locktable.GrantReported)
}

// reportLossHere makes this connection report the loss of a process's lease, if the connection
// that took the lease has ended and no other one reports it.
func (s *session) reportLossHere(h *heldLease) {
	if !h.OfProcess || s.host.reporter(h) != nil || (&resumeWork{s: s, h: h}).moveLossReport() != nil {
		return
	}
	s.host.noteConnection(s, h, 0)
}

// outcome returns nil if the ended LOCK got a lease that is still held. The lease may be lost
// already, because a node was slow or the host was suspended.
func (a *lockRequest) outcome() error {
	err := a.failure
	if err == nil {
		err = a.lease.Err()
	}
	if p := a.process(); err != nil && p.hasEnded() {
		return processEnded(p.pid)
	}
	return err
}
