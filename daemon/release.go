package daemon

import (
	"context"
	"errors"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// unlock counts down, and after the last count sends the release at once, so
// that what comes next, on this connection and in the queue, comes behind it; its
// answer waits for a quorum.
func (s *session) unlock(call *server.Call) server.Work {
	if names := s.gaveBack(call); names != nil {
		return reply(call, ok(call).Strs("lock", names...).Int("pending", 1).
			Say("the daemon was restarted: the release is repeated until the nodes answer or the lock has expired"))
	}
	h, err := s.find(call)
	if err != nil {
		return s.refuse(call, err)
	}
	left := h.countDown()
	if s.d.uncounted(h); left > 0 {
		return s.countedDown(call, h, left)
	}
	release, err := s.d.release(h, call.Number)
	if err != nil {
		h.stopped()
		return s.refuse(call, err)
	}
	s.d.forget(h)
	return &unlock{s, call, h, release}
}

// countedDown answers where others of the same owner hold on. The loss of the
// lease has ended all counts.
func (s *session) countedDown(call *server.Call, h *holding, left int) server.Work {
	if err := h.lease.Err(); err != nil {
		return s.refuse(call, err)
	}
	s.d.counted(call, h)
	return reply(call, ok(call).Strs("lock", h.names()...).Int("count", int64(left)))
}

// unlock is an UNLOCK under way.
type unlock struct {
	s       *session
	call    *server.Call
	h       *holding
	release *redlock.Releasing
}

// Run notes the answer by itself: where that is not to be given any more, because the
// daemon is being frozen, what the next one needs for it must not be forgotten.
func (u *unlock) Run() {
	ctx, cancel := u.waitContext()
	defer cancel()
	err := u.release.Wait(ctx)
	if d := u.s.d; u.release.Everywhere() {
		d.gaveBackFor(u.call, u.h.number)
	} else {
		d.unlocked(u.call, u.h.number)
		defer d.gaveBack(u.h, u.release)
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

// waitContext returns a context that ends the wait for the nodes after wait=. Without wait= only the
// node timeout bounds the wait. At the time of the call the release is in the state file and in the
// lanes, so wait=0 loses nothing.
func (u *unlock) waitContext() (context.Context, context.CancelFunc) {
	if !u.call.Has(ipc.OptWait) || u.call.Wait == ipc.Forever {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), u.call.Wait)
}

// gaveBackFor ends what is noted of a lease together with the UNLOCK that gave it
// back, whose answer is to follow at once: without the lease the next process would
// answer NOTHELD to an UNLOCK that is not noted as answered.
func (d *daemon) gaveBackFor(call *server.Call, number uint64) {
	if !d.journal.IsOpen() || number == 0 {
		return
	}
	call.RecordingAnswer()
	d.journal.Forgotten(number, call.Number)
}

// unlocked notes the answer alone: what is noted of the lease ends later.
func (d *daemon) unlocked(call *server.Call, number uint64) {
	if !d.journal.IsOpen() || number == 0 {
		return
	}
	call.RecordingAnswer()
	d.journal.Answered(call.Number)
}

// gaveBack ends what is noted of a lease that was given back when all nodes have heard of
// it. Where one has not, be it that a quorum has, the next process is to repeat it as this
// one does: until the lock has expired in any case. It does not wait.
func (d *daemon) gaveBack(h *holding, release *redlock.Releasing) {
	if h.number != 0 {
		release.Then(func(owing int) { d.gaveBackBut(h.number, owing) })
	}
}

// maxOwed bounds what is noted of releases that a quorum has heard of: where a node answers
// all of them with an error, each UNLOCK would make the table longer. (Where so many do that
// nobody gets a lock, there is an end of that.)
const maxOwed = 10000

// gaveBackBut is for so many nodes that have not heard of it.
func (d *daemon) gaveBackBut(number uint64, owing int) {
	switch nodes := &d.cfg.Quorum; {
	case owing > len(nodes.Nodes)-nodes.Needed():
		d.forgetExpired(number)
	case owing > 0 && d.mayOwe():
		d.journal.ForgottenAfter(number, nodes.MaxTTL, func() { d.owed.Add(-1) })
	default:
		d.journal.Forgotten(number, 0)
	}
}

// mayOwe counts one in, unless it is one too many.
func (d *daemon) mayOwe() bool {
	if d.owed.Add(1) <= maxOwed {
		return true
	}
	d.owed.Add(-1)
	return false
}

// forgetExpired ends what is noted of what is given back when it has expired in any case.
// It does not wait.
func (d *daemon) forgetExpired(number uint64) {
	d.journal.ForgottenAfter(number, d.cfg.Quorum.MaxTTL, nil)
}

// unregister ends what anybody can ask of a lease by its id.
func (d *daemon) unregister(h *holding) {
	d.leases.remove(h)
	if h.forget() {
		d.limits.ForgetLost(h.UID)
	}
	h.mu.Lock()
	giving := h.giving
	h.mu.Unlock()
	if !giving {
		d.journal.Forgotten(h.number, 0)
	}
}

// end takes a holding out of the queue: it is held no more, whoever said so.
func (d *daemon) end(h *holding) {
	h.ended.Do(func() {
		h.stopBeat()
		h.countsOver()
		d.queue.Leave(&h.waiter, nil)
		d.limits.EndLease(h.UID, len(h.names()))
		d.uncounted(h)
		if h.hasBegun() {
			d.recorder.Held(d.clock() - h.lease.Since())
		}
	})
}

// keep makes a lease go by its names, and ends the memory of those that went by
// them before. A process that has ended meanwhile holds nothing.
func (d *daemon) keep(h *holding) {
	if h.process != nil {
		d.processes.keep(h.process)
		h.attached().note(h)
	}
	before, open := h.desk().add(h)
	for _, old := range before {
		d.forget(old)
	}
	if !open {
		d.processEnded(h)
	}
}

// forget ends the memory of a holding.
func (d *daemon) forget(h *holding) {
	if h.lease != nil {
		d.unregister(h)
	}
	d.unlist(h)
}

// unlist ends that it goes by its names.
func (d *daemon) unlist(h *holding) {
	if s := h.attached(); s != nil {
		s.remove(h)
	}
	if h.process != nil {
		h.desk().remove(h)
		h.freed.Do(func() { d.processes.release(h.process) })
	}
}

// release gives a lease back without waiting for the nodes, and takes it out of
// the queue. Where the next in line wants just the same, that one's grant begins
// in the same call of the nodes, here and now: the first bytes leave before
// anybody is woken. The error is that of Lease.BeginRelease; nothing was done
// then. by is the number of the UNLOCK; 0: its client is gone.
func (d *daemon) release(h *holding, by uint64) (*redlock.Releasing, error) {
	d.noteRelease(h, by)
	goesOn := d.queue.Streak(&h.waiter).Next(h.lease.Since(), h.lease.Wanted(), d.clock())
	if next := d.nextFor(h, goesOn); next != nil {
		if release := d.handOver(h, next); release != nil {
			d.endRow(h, goesOn)
			return release, nil
		}
	}
	release, err := h.lease.BeginRelease()
	if err != nil {
		h.setGiving(errors.Is(err, redlock.ErrReleased)) // by another UNLOCK, whose record it is
		return nil, err
	}
	d.endRow(h, goesOn)
	return release, nil
}

// noteRelease notes that a lease is given back, by the request with that number,
// before any node hears of it. Where it turns out to be lost, that is noted as well.
func (d *daemon) noteRelease(h *holding, by uint64) {
	h.setGiving(true)
	d.journal.Releasing(h.number, by)
}

func (h *holding) setGiving(giving bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giving = giving
}

// nextFor is who is to have the lock from h; nil: nobody in particular.
func (d *daemon) nextFor(h *holding, goesOn waitqueue.Streak) *waitqueue.Waiter {
	if goesOn.Yields {
		return nil
	}
	return d.queue.ClaimNext(&h.waiter, goesOn)
}

// handOver begins the grant of the next one. It returns nil where that cannot be:
// nothing was done then, and the promise is taken back.
func (d *daemon) handOver(h *holding, next *waitqueue.Waiter) *redlock.Releasing {
	release, begun, err := h.lease.HandOver(next.Request())
	if err != nil {
		d.queue.Unclaim(next)
		return nil
	}
	if !d.queue.Deliver(next, begun) {
		begun.Abandon()
		next.Undelivered()
	}
	return release
}

// endRow ends a holding, of whose row those go on who are called now.
func (d *daemon) endRow(h *holding, goesOn waitqueue.Streak) {
	d.queue.SetStreak(&h.waiter, goesOn)
	d.end(h)
}
