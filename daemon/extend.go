package daemon

import (
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// extend extends a lease now.
func (s *session) extend(call *server.Call) server.Work {
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
	call *server.Call
	h    *holding
}

func (e *extend) Run() {
	if err := e.h.lease.Extend(e.call.Context(), e.call.TTL); err != nil {
		e.s.refuse(e.call, err)
		return
	}
	e.call.Reply(keptFields(e.call, e.h))
}

// check answers from memory.
func (s *session) check(call *server.Call) server.Work {
	h, err := s.find(call)
	if err == nil {
		err = h.lease.Err()
	}
	if err != nil {
		return s.refuse(call, err)
	}
	return reply(call, keptFields(call, h))
}

// keptFields is what CHECK and EXTEND answer: somebody else may have changed the ttl,
// and the guard with it.
func keptFields(call *server.Call, h *holding) *ipc.Response {
	return countField(slotField(validityFields(call, h).Ms("guard", h.lease.Guard()), h.lease.Slot()), h)
}

// countField is for who does not say whether it counts: it is told where more than one
// UNLOCK is needed.
func countField(r *ipc.Response, h *holding) *ipc.Response {
	if n := h.count(); n > 1 {
		r.Int("count", int64(n))
	}
	return r
}

// leaseFields is what LOCK and RESUME answer.
func leaseFields(call *server.Call, h *holding) *ipc.Response {
	return slotField(validityFields(call, h), h.lease.Slot())
}

// validityFields: ttl is the validity that is left, and deadline the same instant on
// CLOCK_BOOTTIME.
func validityFields(call *server.Call, h *holding) *ipc.Response {
	deadline := h.lease.Deadline()
	return ok(call).
		Strs("lock", h.names()...).
		Str("lease", h.lease.ID()).
		Int("fence", int64(h.lease.Fence())).
		Ms("ttl", h.lease.Validity()).
		Ms("deadline", deadline)
}
