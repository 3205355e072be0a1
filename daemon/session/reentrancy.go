package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// stage is the state of a lease for reentrant LOCKs.
type stage uint8

const (
	acquiring stage = iota // nothing is granted yet
	counting               // as many UNLOCKs end it as LOCKs are counted
	ended                  // the last UNLOCK was there
)

// reentrancy are the LOCKs that count beside the first: see holding.
type reentrancy struct {
	ids     []string // their ids, as they came
	charged int      // how many the user's limit counts
}

// newReentrancy is nil where there are none.
func newReentrancy(further []string) *reentrancy {
	if len(further) == 0 {
		return nil
	}
	return &reentrancy{ids: further}
}

// chargeAll has the limit count all that count, who are as many as it returns. It needs
// mu, but while nobody else knows the holding.
func (h *heldLease) chargeAll() int {
	n := len(h.reentrantIDs())
	if n > 0 {
		h.reentrancy.charged = n
	}
	return n
}

// reentrantIDs are the ids of the LOCKs that count beside the first. It needs mu.
func (h *heldLease) reentrantIDs() []string {
	if h.reentrancy == nil {
		return nil
	}
	return h.reentrancy.ids
}

// joinFirst decides about a LOCK whose owner holds or wants the name already, by its LOCK
// first: it is the same one once more, by its id=, or it counts up. The error matches
// ErrReleased if first has ended: it was released just now, or lost.
func (a *lockRequest) joinFirst(first *lockRequest) (server.Work, error) {
	if first.isOver() {
		return nil, redlock.ErrReleased
	}
	d := a.session.host
	full := d.Limits.AddReentrant(first.UID, a.call.Replayed || a.earlierFailure != nil) // whose lease it is: root may have resumed it
	again, err := first.countUp(&a.waiter, a.ID, a.call.Reentrant, full)
	if full == nil && (again || err != nil) {
		d.Limits.RemoveReentrant(first.UID, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.waiter.Label(), err)
	}
	if again {
		return a.repeat(first)
	}
	return &reentrantLock{lockRequest: a, first: first}, nil
}

// repeat is bounded as questions are: it waits, and takes nothing.
func (a *lockRequest) repeat(first *lockRequest) (server.Work, error) {
	if err := a.session.host.Limits.BeginQuery(a.UID); err != nil {
		return nil, err
	}
	return &boundedWork{a.session, &repeatedLock{lockRequest: a, first: first}}, nil
}

// isOver tells whether the LOCK has come to its end, and no lease stands for it.
func (a *lockRequest) isOver() bool {
	return isClosed(a.done) && a.outcome() != nil
}

// countUp counts a further LOCK of the same names and kind, unless it is one that
// is counted already (again), or full says why its user can have no more.
func (h *heldLease) countUp(p *waitqueue.Waiter, id string, reentrant bool, full error) (again bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stage == ended:
		return false, redlock.ErrReleased
	case !slices.Equal(p.Names, h.names()):
		return false, fmt.Errorf("%w, within %s", h.already(), h.waiter.Label())
	case h.isCounted(id):
		return true, nil
	case !reentrant:
		return false, h.already()
	case p.Kind != h.waiter.Kind:
		return false, fmt.Errorf("%w, in another mode or with another number of slots: a lease does not change", h.already())
	case 1+len(h.reentrantIDs()) >= maxCount:
		return false, errCounts
	case full != nil:
		return false, full
	}
	if h.reentrancy == nil {
		h.reentrancy = &reentrancy{}
	}
	h.reentrancy.ids = append(h.reentrancy.ids, id)
	h.reentrancy.charged++
	return false, nil
}

// settleReentrancy counts out what counts on a lease no more: it is called after whatever takes
// from further.
func (d *Host) settleReentrancy(h *heldLease) {
	d.Limits.RemoveReentrant(h.UID, h.takeUncharged())
}

// takeUncharged returns how many LOCKs the user's limit counts that are undone, and has the
// limit count the rest.
func (h *heldLease) takeUncharged() (over int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.reentrancy; c != nil {
		over = c.charged - len(c.ids)
		c.charged = len(c.ids)
	}
	return over
}

// clearCounts undoes all reentrant LOCKs: the lease has ended.
func (h *heldLease) clearCounts() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stage = ended
	if h.reentrancy != nil {
		h.reentrancy.ids = nil
	}
}

// already says whose it is.
func (h *heldLease) already() error {
	if h.process != nil {
		return fmt.Errorf("%w by process %d", errAlready, h.process.pid)
	}
	return fmt.Errorf("%w by this owner on this connection", errAlready)
}

// isCounted needs mu.
func (h *heldLease) isCounted(id string) bool {
	return id != "" && (id == h.ID || slices.Contains(h.reentrantIDs(), id))
}

// countsRequest tells whether the LOCK with that id is neither given up nor undone
// by an UNLOCK.
func (h *heldLease) countsRequest(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isCounted(id)
}

// countDown is an UNLOCK: the LOCK that came last is undone. It returns how many
// are left; 0: the lease ends. So it does where who counted is gone, and has not come
// back (RESUME).
func (h *heldLease) countDown() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.reentrantIDs())
	if n == 0 || h.session == nil && h.process == nil {
		h.stage = ended
		return 0
	}
	h.reentrancy.ids = h.reentrancy.ids[:n-1]
	return n
}

// withdrawCount undoes a further LOCK that waits no more. It is false if the lock
// has been granted: then it counts.
func (h *heldLease) withdrawCount(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage != acquiring {
		return false
	}
	if i := slices.Index(h.reentrantIDs(), id); i >= 0 {
		h.reentrancy.ids = slices.Delete(h.reentrancy.ids, i, i+1)
	}
	return true
}

// granted: the lock is granted.
func (h *heldLease) granted(d *Host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage == acquiring { // else it is lost already
		h.stage = counting
	}
	h.startHeartbeat(d)
}

// count is how many UNLOCKs it takes to end the lease.
func (h *heldLease) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return 1 + len(h.reentrantIDs())
}

// reentrantLock is a LOCK that counts up. While the first one of its owner waits, it
// waits with that one, and shares its outcome; but it goes on where that one alone
// waits no longer.
type reentrantLock struct {
	*lockRequest
	first *lockRequest
}

// Run waits with one after the other: where a thousand wait, that can be a thousand.
func (f *reentrantLock) Run() {
	work := f.answer()
	for another, waits := work.(*reentrantLock); waits; another, waits = work.(*reentrantLock) {
		work = another.answer()
	}
	if work != nil {
		work.Run()
	}
}

// answer waits for the first one. Where it is to go on without it, it returns the rest.
func (f *reentrantLock) answer() server.Work {
	err := f.waitForFirst(f.call.Context())
	if err == nil {
		err = f.first.outcome()
	}
	switch {
	case f.goesOn(err):
		return f.goOn(err)
	case err != nil:
		return f.session.refuse(f.call, err)
	}
	f.session.reportLossHere(f.first.heldLease)
	f.session.host.noteCount(f.call, f.first.heldLease, f.ID)
	f.call.Reply(grantFields(f.call, f.first.heldLease))
	f.session.host.reportGranted(f.first.heldLease)
	return nil
}

// goesOn tells whether a LOCK that waited with another one, which ended with err, waits
// on: not where its own wait is over as well.
func (a *lockRequest) goesOn(err error) bool {
	return endsOneAlone(err) && a.waitLeft() != 0 && !isClosed(a.holderGone()) && a.call.Context().Err() == nil
}

// endsOneAlone is so of what ends a LOCK that others of its owner need not share: it was
// given up, or its time is over.
func endsOneAlone(err error) bool {
	return slices.ContainsFunc([]error{server.ErrCancelled, server.ErrGone, server.ErrLate, redlock.ErrHeld, redlock.ErrNoQuorum},
		func(reason error) bool { return errors.Is(err, reason) })
}

// goOn puts the request into the queue again, or behind another first one, and returns the
// work that is left, if any. It passed the limits before, and they do not refuse it now.
func (a *lockRequest) goOn(past error) server.Work {
	anew, err := a.session.newLockRequest(a.call)
	if err != nil {
		return a.session.refuse(a.call, err)
	}
	anew.Asked, anew.earlierFailure = a.Asked, past
	return a.session.start(anew)
}

// noteCount notes that one more counts on a lease, by its id=, or (none) one less,
// before the request is answered.
func (d *Host) noteCount(call *server.Call, h *heldLease, more ...string) {
	if h.number == 0 {
		return
	}
	call.RecordingAnswer()
	d.Journal.Counted(h.number, more, call.Number)
}

// waitForFirst waits no longer than its own wait=. Where it gives up, it is counted no
// more. What ends both, such as the end of the input, ends the first.
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
		err = f.first.whyNotReady()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if f.first.withdrawCount(f.ID) {
		f.session.host.settleReentrancy(f.first.heldLease)
		return err
	}
	<-f.first.done // at once: it has been granted
	return nil
}

// repeatedLock is the same LOCK once more, by its id=: it is answered as the first; and where
// it was a further one that it repeats, it goes on as that does.
type repeatedLock struct {
	*lockRequest
	first *lockRequest
}

func (r *repeatedLock) Run() {
	err := r.first.await(r.call.Context())
	if err == nil {
		err = r.first.outcome()
	}
	switch {
	case r.ID != r.first.ID && r.goesOn(err):
		r.call.Reentrant = true // whichever of the two is there first
		if work := r.goOn(err); work != nil {
			work.Run()
		}
		return
	case err == nil && !r.first.countsRequest(r.ID):
		err = errUndone
	}
	if err != nil {
		r.call.Reply(responseOf(r.call, err))
		return
	}
	r.session.reportLossHere(r.first.heldLease)
	r.call.Reply(grantFields(r.call, r.first.heldLease).Str("again", "yes"))
	r.session.host.reportGranted(r.first.heldLease)
}

// reportLossHere has this connection report the loss of a lease of a process if no connection
// does, as the one that took it has ended.
func (s *session) reportLossHere(h *heldLease) {
	if h.process == nil || h.attached() != nil || (&resumeWork{s: s, h: h}).hear() != nil {
		return
	}
	s.host.noteConnection(s, h, 0)
}

// await waits until the LOCK has come to its end.
func (a *lockRequest) await(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// outcome is nil if the LOCK, which has come to its end, got a lease that stands: it may
// be lost already, by a slow node, or a host that was stopped.
func (a *lockRequest) outcome() error {
	err := a.failed
	if err == nil {
		err = a.lease.Err()
	}
	if err != nil && a.process.hasEnded() {
		return a.process.endedError()
	}
	return err
}
