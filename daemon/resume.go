package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// resume is a RESUME under way: a client is back, on another connection, and wants
// to go on with its lease.
type resume struct {
	s     *session
	call  *server.Call
	h     *holding
	again *ask // the LOCK that it is, repeated by its id=; nil: a RESUME
}

// resume takes a lease over: from a connection of before a restart, which the daemon
// could not keep, from one whose end has not been noticed yet, or within linger=.
func (s *session) resume(call *server.Call) server.Work {
	h, err := s.resumable(call)
	if err != nil {
		return s.refuse(call, err)
	}
	return &resume{s: s, call: call, h: h}
}

// resumable is a lease that this client may go on with: whoever knows its id, and is
// the user that took it.
func (s *session) resumable(call *server.Call) (*holding, error) {
	h := s.d.leases.get(call.Lease)
	switch {
	case h == nil, s.uid != h.UID && s.uid != 0, !slices.Equal(call.Names, h.names()):
		return nil, errNoLease
	case call.Owner != h.Owner:
		return nil, badOption("owner=%s: %s was taken with another owner=, which RESUME has to say as well", call.Owner, h.waiter.Label())
	}
	return h, h.lease.Err()
}

// Run answers once a quorum has confirmed the lease.
func (r *resume) Run() {
	err := r.isWanted()
	if err == nil {
		err = r.take()
	}
	if err == nil {
		r.noteTaken()
		err = r.confirm()
	}
	if err == nil && r.h.process == nil && r.h.attached() != r.s {
		err = errNoLease // another RESUME was faster, whose it is
	}
	if err != nil {
		r.s.refuse(r.call, err)
		return
	}
	r.s.d.resumed(r.s, r.call, r.h)
	answer := r.answer()
	if r.again != nil {
		answer.Str("again", "yes")
	}
	r.call.Reply(answer)
}

// isWanted is why nothing is taken over any more. What waited for its turn on a connection
// that its client has closed comes behind his RESUME on the next one: the lease would be
// taken from where it is held, and given back at once. (Of a LOCK nothing is to be left.)
func (r *resume) isWanted() error {
	if r.again != nil {
		return nil
	}
	if r.s.conn.HungUp() {
		return server.ErrGone
	}
	return context.Cause(r.call.Context())
}

// noteTaken notes whose the lease is before the nodes are asked: it is that connection's also
// where they do not confirm it, and the end of the one before is no end of its client.
func (r *resume) noteTaken() {
	if r.h.attached() == r.s { // else another RESUME was faster
		r.s.d.hears(r.s, r.h, 0)
	}
}

// askedAgain is how long after a quorum was not met it is asked for once more.
const askedAgain = 100 * time.Millisecond

// confirm has a quorum confirm the lease. A LOCK waits for one as any other does, and if
// it is refused nothing of it is left.
func (r *resume) confirm() error {
	err := r.h.lease.Extend(r.call.Context(), 0)
	if r.again == nil {
		return err
	}
	for errors.Is(err, redlock.ErrNoQuorum) && r.again.pause(askedAgain) {
		next := r.h.lease.Extend(r.call.Context(), 0)
		if errors.Is(next, redlock.ErrLost) {
			break // for its ttl there was no quorum
		}
		err = next
	}
	if err != nil && !r.s.d.stopping.Load() { // else it can be repeated once more
		r.undo()
	}
	return err
}

// pause waits for so long, and tells whether the request goes on waiting.
func (a *ask) pause(most time.Duration) bool {
	timer := time.NewTimer(min(most, a.alarm()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return a.alarm() > 0
	case <-a.enough():
	case <-a.call.Context().Done():
	}
	return false
}

// undo has the LOCK count no more, and gives the lease back if none does.
func (r *resume) undo() {
	d, h := r.s.d, r.h
	if h.attached() != r.s {
		return // who knows its id was here meanwhile (RESUME)
	}
	left := h.countDown()
	if d.uncounted(h); left > 0 {
		d.counted(r.call, h)
		return
	}
	release, err := d.release(h, 0)
	if err != nil { // it was lost, and LOST is or will be said
		return
	}
	d.forget(h)
	d.gaveBack(h, release)
}

// answer is that of LOCK.
func (r *resume) answer() *ipc.Response {
	if r.call.Reentrant {
		return grantFields(r.call, r.h)
	}
	return countField(grantFields(r.call, r.h), r.h)
}

// take makes the lease this connection's, from now on: were it to end while the
// nodes are asked, the lease would be given back.
func (r *resume) take() error {
	h, s := r.h, r.s
	if h.process != nil {
		return r.hear()
	}
	if h.desk() == &s.desk {
		return nil // it is there already
	}
	before, err := s.desk.takeIn(h)
	if err != nil {
		return err
	}
	for _, lost := range before {
		s.d.forget(lost)
	}
	_, from, ok := h.attach(s, &s.desk)
	if !ok {
		s.desk.remove(h)
		return errNoLease
	}
	if from != &s.desk { // else another RESUME here was faster
		from.remove(h)
	}
	s.d.orphans.forget(h)
	s.d.queue.ChangeOwner(&h.waiter, h.ownerNow)
	if h.hold == ipc.HoldConn {
		h.lease.Keep()
	}
	return nil
}

// hear makes a lease that goes by a process known to this connection, and to no other. It
// is nobody's where that has ended: it lingers, and is given back then.
func (r *resume) hear() error {
	if r.h.process.hasEnded() {
		return fmt.Errorf("%w: process %d, which it went by, has ended", errNoLease, r.h.process.pid)
	}
	r.s.note(r.h) // before anybody could have it forgotten here
	before, _, ok := r.h.attach(r.s, nil)
	switch {
	case !ok:
		r.s.remove(r.h)
		return errNoLease
	case before != nil && before != r.s:
		before.remove(r.h)
	}
	return nil
}

// attach has a session hear of the holding's loss, and the holding go by its names
// there, instead of the one before. It is false if it is being given back.
func (h *holding) attach(s *session, k *desk) (before *session, from *desk, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, from = h.session, cmp.Or(h.moved, h.first)
	if h.giving {
		return before, from, false
	}
	h.session = s
	if k != nil {
		h.moved = k // who counts on it comes along
	}
	return before, from, true
}

// takeIn has a holding that was another desk's go by its names here, as add does.
func (k *desk) takeIn(h *holding) (before []*holding, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range h.names() {
		at := h.ident(name)
		other := k.holdings[at]
		if other == h {
			return nil, nil // by another LOCK that counts on it
		}
		if k.asks[at] != nil || other != nil && other.lease.Err() == nil {
			return nil, fmt.Errorf("%s: %w by this owner on this connection", h.waiter.Label(), errAlready)
		}
	}
	before, open := k.put(h)
	if !open {
		return nil, server.ErrGone
	}
	return before, nil
}

// resumed notes whose the lease is now, with the answer.
func (d *daemon) resumed(s *session, call *server.Call, h *holding) {
	if h.number != 0 {
		call.RecordingAnswer()
	}
	d.hears(s, h, call.Number)
}

// hears notes which connection hears of a lease, with the answer to a request; 0: without.
// Where another one has resumed it meanwhile, that is noted last.
func (d *daemon) hears(s *session, h *holding, by uint64) {
	d.store.Prefer(&s.stored)
	d.journal.Resumed(h.number, s.number, h.Owner, by)
	if now := h.attached(); now != nil && now != s {
		d.hears(now, h, 0)
	}
}
