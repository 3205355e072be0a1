package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// rememberLost is how long a lost lease is told of on a connection that stays
// open.
const rememberLost = time.Hour

// unlock counts down, and after the last count sends the release at once, so
// that what comes next, on this connection and in the queue, comes behind it; its
// answer waits for a quorum.
func (s *session) unlock(call *ipc.Call) ipc.Work {
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
func (s *session) countedDown(call *ipc.Call, h *holding, left int) ipc.Work {
	if err := h.lease.Err(); err != nil {
		return s.refuse(call, err)
	}
	s.d.counted(call, h)
	return reply(call, ok(call).Strs("lock", h.names()...).Int("count", int64(left)))
}

// unlock is an UNLOCK under way.
type unlock struct {
	s       *session
	call    *ipc.Call
	h       *holding
	release *redlock.Releasing
}

// Run notes the answer by itself: where that is not to be given any more, because the
// daemon is being frozen, what the next one needs for it must not be forgotten.
func (u *unlock) Run() {
	err := u.release.Wait(context.Background()) // bounded by the node timeout
	if !errors.Is(err, redlock.ErrNoQuorum) {
		u.s.d.gaveBackFor(u.call, u.h.number)
	} else {
		defer u.s.d.gaveBack(u.h, err)
	}
	switch {
	case err == nil:
		u.call.Reply(ok(u.call).Strs("lock", u.h.names()...))
	case errors.Is(err, redlock.ErrNoQuorum):
		u.call.Reply(ok(u.call).Strs("lock", u.h.names()...).Int("pending", 1).
			Say("too few nodes answered yet: the release is repeated until they do or the lock has expired"))
	default:
		u.s.refuse(u.call, err)
	}
}

// gaveBackFor ends what is noted of a lease together with the UNLOCK that gave it
// back, whose answer is to follow at once: without the lease the next process would
// answer NOTHELD to an UNLOCK that is not noted as answered.
func (d *daemon) gaveBackFor(call *ipc.Call, number uint64) {
	if d.ledger == nil || number == 0 {
		return
	}
	call.Noting()
	d.ledger.lease(recForgot, &pastLease{number: number, by: call.Number})
}

// gaveBack ends what is noted of a lease that was given back. Where too few nodes
// have answered, the next process is to repeat it as this one does: until the lock
// has expired in any case.
func (d *daemon) gaveBack(h *holding, err error) {
	if errors.Is(err, redlock.ErrNoQuorum) {
		d.forgetExpired(h.number)
		return
	}
	d.ledger.lease(recForgot, &pastLease{number: h.number})
}

// forgetExpired ends what is noted of what is given back when it has expired in any case.
// It does not wait.
func (d *daemon) forgetExpired(number uint64) {
	time.AfterFunc(d.cfg.Quorum.MaxTTL, func() { d.ledger.lease(recForgot, &pastLease{number: number}) })
}

// unregister ends what anybody can ask of a lease by its id.
func (d *daemon) unregister(h *holding) {
	d.leases.remove(h)
	if h.forget() {
		d.limits.forgot(h.uid)
	}
	h.mu.Lock()
	giving := h.giving
	h.mu.Unlock()
	if !giving {
		d.ledger.lease(recForgot, &pastLease{number: h.number})
	}
}

// end takes a holding out of the queue: it is held no more, whoever said so.
func (d *daemon) end(h *holding) {
	h.ended.Do(func() {
		h.stopBeat()
		h.countsOver()
		d.queue.leave(&h.place, nil)
		d.limits.ended(h.uid)
		d.uncounted(h)
		d.meter.ended(h, d.clock())
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
	if s := h.attached(); s != nil {
		s.remove(h)
	}
	if h.process != nil {
		h.desk().remove(h)
		h.freed.Do(func() { d.processes.release(h.process) })
	}
}

// lost is what a lease does when it is lost: the client hears of it before the
// deadline, and before anything that could block. The place in the queue is
// kept until then: the client may still be stopping.
func (d *daemon) lost(h *holding, lease *redlock.Lease) {
	d.ledger.lease(recLost, &pastLease{number: h.number, reason: lease.Reason()})
	if h.lostNow(d.clock()) {
		d.tellLost(h)
	}
	if left := lease.Validity(); left > 0 && lease.Reason() != redlock.LostForced {
		time.AfterFunc(left, func() { d.end(h) })
	} else {
		d.end(h)
	}
	d.meter.lost(lease.Reason())
	d.log.Warn("lease lost", "lock", h.place.label(), "reason", lease.Reason(), "user", h.user, "pid", h.pid, "cause", orNone(lease.Cause()))
}

func orNone(err error) any {
	if err == nil {
		return "none"
	}
	return err
}

// tellLost sends LOST, and remembers it for as long as the client may ask.
func (d *daemon) tellLost(h *holding) {
	s, lease := h.attached(), h.lease
	if s != nil {
		s.sayLost(h.names(), lease.ID(), lease.Reason(), lostText[lease.Reason()])
	}
	d.ledger.lease(recTold, &pastLease{number: h.number})
	switch {
	case s == nil && h.process == nil:
		d.unregister(h)
	default:
		d.remember(h)
	}
}

func (s *session) sayLost(names []string, lease string, reason redlock.LostReason, text string) {
	s.conn.Send(new(ipc.Response).Notice(ipc.EventLost).
		Strs("lock", names...).Str("lease", lease).Str("reason", string(reason)).Say(text))
}

// remember keeps a lost lease for whoever asks, and forgets another where that is
// one too many.
func (d *daemon) remember(h *holding) {
	if !h.remember() {
		return // its connection has ended meanwhile
	}
	if oldest := h.desk().remember(h, d.limits.remember(h.uid)); oldest != nil {
		d.forget(oldest)
	}
}

// tooOld: a lost lease is told of for an hour at most.
func (d *daemon) tooOld(h *holding) bool {
	h.mu.Lock()
	lostAt := h.lostAt
	h.mu.Unlock()
	return lostAt != 0 && d.clock()-lostAt > rememberLost
}

var lostText = map[redlock.LostReason]string{
	redlock.LostForced:  "somebody took it away with FORCE: others may hold it already, stop at once",
	redlock.LostQuorum:  "it could not be extended on a quorum of nodes, or this host was stopped for too long: stop what it protects",
	redlock.LostBeat:    "no BEAT came for as long as beat= says: stop what it protects",
	redlock.LostMax:     "its longest holding time (max) is over: stop what it protects",
	redlock.LostExpired: "its ttl is over: stop what it protects",
}

// abandoned is a holding whose connection has ended. Where it was we who cut
// it, the client may be at work and not know yet: the lock stays taken until
// the deadline that it was told.
func (d *daemon) abandoned(h *holding, wasCut bool) {
	switch {
	case h.lease.Err() != nil:
		if !wasCut && h.hold == ipc.HoldConn && !d.stopping.Load() {
			h.stopped()
		}
		d.unregister(h)
	case h.hold != ipc.HoldConn: // held on, until its ttl is over; also where nobody knows whether its process lives
	case wasCut:
		d.giveUp(h)
	default:
		d.giveBackAfterLinger(h)
	}
}

// stopped gives back what others may have anyway of a lease that was lost by FORCE:
// the rest of several names, now that its client has stopped, or is gone. Without that
// they are given back at the deadline.
func (h *holding) stopped() {
	if h.lease.Reason() == redlock.LostForced {
		h.lease.Stopped()
	}
}

// giveBackAfterLinger gives back at once where there is no linger=. When that began is
// noted: the next daemon is to go on with it.
func (d *daemon) giveBackAfterLinger(h *holding) {
	if h.linger > 0 {
		now := d.clock()
		d.ledger.lease(recLeft, &pastLease{number: h.number, left: now})
		d.lingerSince(h, now)
		return
	}
	d.giveBack(h)
}

// lingerSince gives back when linger= is over that began at an instant.
func (d *daemon) lingerSince(h *holding, then time.Duration) {
	time.AfterFunc(then+h.linger-d.clock(), func() { d.giveBack(h) })
}

// giveUp lets a lease run out.
func (d *daemon) giveUp(h *holding) {
	h.lease.GiveUp()
	d.unregister(h)
	time.AfterFunc(max(h.lease.Validity(), 0), func() { d.end(h) })
}

// giveBack releases for a client that is gone. The lanes see to it that every
// node hears of it; nobody waits.
func (d *daemon) giveBack(h *holding) {
	if d.stopping.Load() || !h.claim() {
		return // it is we who go, and the client may be in the middle of its work; or it came back
	}
	release, err := d.release(h, 0)
	d.forget(h)
	if err == nil {
		d.awaitRelease(h, release)
		d.log.Debug("lease given back: its client is gone", "lock", h.place.label(), "user", h.user, "pid", h.pid)
	}
}

// awaitRelease waits for what nobody else waits for, to note that it is over.
func (d *daemon) awaitRelease(h *holding, release *redlock.Releasing) {
	if h.number == 0 {
		return
	}
	go func() { // as long as the node timeout
		d.gaveBack(h, release.Wait(context.Background()))
	}()
}

// extend extends a lease now.
func (s *session) extend(call *ipc.Call) ipc.Work {
	h, err := s.find(call)
	if err == nil && call.Has(ipc.OptTTL) && (call.TTL < redlock.MinTTL || call.TTL > s.d.cfg.Quorum.MaxTTL) {
		err = badOption("ttl=%d: must be between %d and %d ms (max_ttl of the config)", ms(call.TTL), ms(redlock.MinTTL), ms(s.d.cfg.Quorum.MaxTTL))
	}
	if err != nil {
		return s.refuse(call, err)
	}
	return &extend{s, call, h}
}

// extend is an EXTEND under way.
type extend struct {
	s    *session
	call *ipc.Call
	h    *holding
}

func (e *extend) Run() {
	if err := e.h.lease.Extend(e.call.Context(), e.call.TTL); err != nil {
		e.s.refuse(e.call, err)
		return
	}
	e.call.Reply(leaseFields(e.call, e.h))
}

// check answers from memory.
func (s *session) check(call *ipc.Call) ipc.Work {
	h, err := s.find(call)
	if err == nil {
		err = h.lease.Err()
	}
	if err != nil {
		return s.refuse(call, err)
	}
	return reply(call, leaseFields(call, h))
}

// leaseFields is what LOCK, CHECK and EXTEND answer: ttl is the validity that
// is left, and deadline the same instant on CLOCK_BOOTTIME.
func leaseFields(call *ipc.Call, h *holding) *ipc.Response {
	deadline := h.lease.Deadline()
	r := ok(call).
		Strs("lock", h.names()...).
		Str("lease", h.lease.ID()).
		Int("fence", int64(h.lease.Fence())).
		Ms("ttl", h.lease.Validity()).
		Ms("deadline", deadline)
	return slotField(r, h.lease.Slot())
}
