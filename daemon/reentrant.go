package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// maxCount is how many LOCKs of one owner a lease can stand for: more than any
// sound program nests.
const maxCount = 1000

// stage is how far a holding has come, for those who count on it.
type stage uint8

const (
	asked  stage = iota // nothing is granted yet
	begun               // as many UNLOCKs end it as LOCKs are counted
	ending              // the last UNLOCK was there
)

// tally are the LOCKs that count beside the first: see holding.
type tally struct {
	further []string // their ids, as they came
	charged int      // how many the user's limit counts
}

// newTally is nil where there are none.
func newTally(further []string) *tally {
	if len(further) == 0 {
		return nil
	}
	return &tally{further: further}
}

// charge has the limit count all that count, who are as many as it returns. It needs
// mu, but while nobody else knows the holding.
func (h *holding) charge() int {
	n := len(h.further())
	if n > 0 {
		h.tally.charged = n
	}
	return n
}

// further are the ids of the LOCKs that count beside the first. It needs mu.
func (h *holding) further() []string {
	if h.tally == nil {
		return nil
	}
	return h.tally.further
}

// after is what becomes of a LOCK whose owner holds or asks for the name
// already, by its LOCK first: the same once more, by its id=, or one that counts
// up. The error matches ErrReleased if first is over: given back just now, or lost.
func (a *ask) after(first *ask) (server.Work, error) {
	if first.isOver() {
		return nil, redlock.ErrReleased
	}
	d := a.s.d
	full := d.limits.AddReentrant(first.UID, a.call.Replayed || a.past != nil) // whose lease it is: root may have resumed it
	again, err := first.countUp(&a.waiter, a.ID, a.call.Reentrant, full)
	if full == nil && (again || err != nil) {
		d.limits.RemoveReentrant(first.UID, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.waiter.Label(), err)
	}
	if again {
		return a.repeat(first)
	}
	return &further{ask: a, first: first}, nil
}

// repeat is bounded as questions are: it waits, and takes nothing.
func (a *ask) repeat(first *ask) (server.Work, error) {
	if err := a.s.d.limits.BeginQuery(a.UID); err != nil {
		return nil, err
	}
	return &question{a.s, &repeat{ask: a, first: first}}, nil
}

// isOver tells whether the LOCK has come to its end, and no lease stands for it.
func (a *ask) isOver() bool {
	return isClosed(a.done) && a.outcome() != nil
}

// countUp counts a further LOCK of the same names and kind, unless it is one that
// is counted already (again), or full says why its user can have no more.
func (h *holding) countUp(p *waitqueue.Waiter, id string, reentrant bool, full error) (again bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stage == ending:
		return false, redlock.ErrReleased
	case !slices.Equal(p.Names, h.names()):
		return false, fmt.Errorf("%w, within %s", h.already(), h.waiter.Label())
	case h.counts(id):
		return true, nil
	case !reentrant:
		return false, h.already()
	case p.Kind != h.waiter.Kind:
		return false, fmt.Errorf("%w, in another mode or with another number of slots: a lease does not change", h.already())
	case 1+len(h.further()) >= maxCount:
		return false, errCounts
	case full != nil:
		return false, full
	}
	if h.tally == nil {
		h.tally = &tally{}
	}
	h.tally.further = append(h.tally.further, id)
	h.tally.charged++
	return false, nil
}

// uncounted counts out what counts on a lease no more: it is called after whatever takes
// from further.
func (d *daemon) uncounted(h *holding) {
	d.limits.RemoveReentrant(h.UID, h.settleCounts())
}

// settleCounts is how many count no more of those that the user's limit counts: from now
// on it counts the others.
func (h *holding) settleCounts() (over int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.tally; c != nil {
		over = c.charged - len(c.further)
		c.charged = len(c.further)
	}
	return over
}

// countsOver: nothing counts on it any more, from now on.
func (h *holding) countsOver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stage = ending
	if h.tally != nil {
		h.tally.further = nil
	}
}

// already says whose it is.
func (h *holding) already() error {
	if h.process != nil {
		return fmt.Errorf("%w by process %d", errAlready, h.process.pid)
	}
	return fmt.Errorf("%w by this owner on this connection", errAlready)
}

// counts needs mu.
func (h *holding) counts(id string) bool {
	return id != "" && (id == h.ID || slices.Contains(h.further(), id))
}

// stillCounts tells whether the LOCK with that id is neither given up nor undone
// by an UNLOCK.
func (h *holding) stillCounts(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts(id)
}

// countDown is an UNLOCK: the LOCK that came last is undone. It returns how many
// are left; 0: the lease ends. So it does where who counted is gone, and has not come
// back (RESUME).
func (h *holding) countDown() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.further())
	if n == 0 || h.session == nil && h.process == nil {
		h.stage = ending
		return 0
	}
	h.tally.further = h.tally.further[:n-1]
	return n
}

// withdraw undoes a further LOCK that waits no more. It is false if the lock
// has been granted: then it counts.
func (h *holding) withdraw(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage != asked {
		return false
	}
	if i := slices.Index(h.further(), id); i >= 0 {
		h.tally.further = slices.Delete(h.tally.further, i, i+1)
	}
	return true
}

// begin: the lock is granted.
func (h *holding) begin(d *daemon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage == asked { // else it is lost already
		h.stage = begun
	}
	h.startBeat(d)
}

// count is how many UNLOCKs it takes to end the lease.
func (h *holding) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return 1 + len(h.further())
}

// further is a LOCK that counts up. While the first one of its owner waits, it
// waits with that one, and shares its outcome; but it goes on where that one alone
// waits no longer.
type further struct {
	*ask
	first *ask
}

// Run waits with one after the other: where a thousand wait, that can be a thousand.
func (f *further) Run() {
	work := f.answer()
	for another, waits := work.(*further); waits; another, waits = work.(*further) {
		work = another.answer()
	}
	if work != nil {
		work.Run()
	}
}

// answer waits for the first one. Where it is to go on without it, it returns the rest.
func (f *further) answer() server.Work {
	err := f.waitForFirst(f.call.Context())
	if err == nil {
		err = f.first.outcome()
	}
	switch {
	case f.goesOn(err):
		return f.goOn(err)
	case err != nil:
		return f.s.refuse(f.call, err)
	}
	f.s.hear(f.first.holding)
	f.s.d.counted(f.call, f.first.holding, f.ID)
	f.call.Reply(grantFields(f.call, f.first.holding))
	f.s.d.granted(f.first.holding)
	return nil
}

// goesOn tells whether a LOCK that waited with another one, which ended with err, waits
// on: not where its own wait is over as well.
func (a *ask) goesOn(err error) bool {
	return endsOneAlone(err) && a.waitLeft() != 0 && !isClosed(a.enough()) && a.call.Context().Err() == nil
}

// endsOneAlone is so of what ends a LOCK that others of its owner need not share: it was
// given up, or its time is over.
func endsOneAlone(err error) bool {
	return slices.ContainsFunc([]error{server.ErrCancelled, server.ErrGone, server.ErrLate, redlock.ErrHeld, redlock.ErrNoQuorum},
		func(reason error) bool { return errors.Is(err, reason) })
}

// goOn asks anew, at the end of the queue, or after another one that is first now, and
// returns the rest, if there is any. It was let in before, and is not refused for want of room.
func (a *ask) goOn(past error) server.Work {
	anew, err := a.s.newAsk(a.call)
	if err != nil {
		return a.s.refuse(a.call, err)
	}
	anew.Asked, anew.past = a.Asked, past
	return a.s.start(anew)
}

// counted notes that one more counts on a lease, by its id=, or (none) one less,
// before the request is answered.
func (d *daemon) counted(call *server.Call, h *holding, more ...string) {
	if h.number == 0 {
		return
	}
	call.RecordingAnswer()
	d.journal.Counted(h.number, more, call.Number)
}

// waitForFirst waits no longer than its own wait=. Where it gives up, it is counted no
// more. What ends both, such as the end of the input, ends the first.
func (f *further) waitForFirst(ctx context.Context) (err error) {
	if isClosed(f.first.done) {
		return nil
	}
	timer := time.NewTimer(f.alarm())
	defer timer.Stop()
	select {
	case <-f.first.done:
		return nil
	case <-timer.C:
		err = f.first.ahead()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if f.first.withdraw(f.ID) {
		f.s.d.uncounted(f.first.holding)
		return err
	}
	<-f.first.done // at once: it has been granted
	return nil
}

// repeat is the same LOCK once more, by its id=: it is answered as the first; and where
// it was a further one that it repeats, it goes on as that does.
type repeat struct {
	*ask
	first *ask
}

func (r *repeat) Run() {
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
	case err == nil && !r.first.stillCounts(r.ID):
		err = errUndone
	}
	if err != nil {
		r.call.Reply(answerOf(r.call, err))
		return
	}
	r.s.hear(r.first.holding)
	r.call.Reply(grantFields(r.call, r.first.holding).Str("again", "yes"))
	r.s.d.granted(r.first.holding)
}

// hear has who counts on a lease, or repeats its LOCK, hear of its loss where nobody does: it
// goes by a process, and the connection on which it was taken has ended.
func (s *session) hear(h *holding) {
	if h.process == nil || h.attached() != nil || (&resume{s: s, h: h}).hear() != nil {
		return
	}
	s.d.hears(s, h, 0)
}

// await waits until the LOCK has come to its end.
func (a *ask) await(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// outcome is nil if the LOCK, which has come to its end, got a lease that stands: it may
// be lost already, by a slow node, or a host that was stopped.
func (a *ask) outcome() error {
	err := a.failed
	if err == nil {
		err = a.lease.Err()
	}
	if err != nil && a.process.hasEnded() {
		return a.process.endedError()
	}
	return err
}

// grantFields is what LOCK answers.
func grantFields(call *server.Call, h *holding) *ipc.Response {
	r := leaseFields(call, h)
	if call.Reentrant {
		r.Int("count", int64(h.count()))
	}
	return r
}
