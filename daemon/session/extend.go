package session

import (
	"fmt"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// extend extends a lease now.
func (s *session) extend(call *server.Call) server.Work {
	h, err := s.find(call)
	if err == nil && call.Has(ipc.OptTTL) && (call.TTL < redlock.MinTTL || call.TTL > s.host.Cfg.Quorum.MaxTTL) {
		err = badOption("ttl=%d: must be between %d and %d ms (max_ttl of the config)", ms(call.TTL), ms(redlock.MinTTL), ms(s.host.Cfg.Quorum.MaxTTL))
	}
	if err != nil {
		return s.refuse(call, err)
	}
	return &extendWork{s, call, h}
}

// extendWork is an EXTEND under way.
type extendWork struct {
	s    *session
	call *server.Call
	h    *heldLease
}

func (e *extendWork) Run() {
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
func keptFields(call *server.Call, h *heldLease) *ipc.Response {
	return countField(slotField(validityFields(call, h).Ms("guard", h.lease.Guard()), h.lease.Slot()), h)
}

// beat answers from memory.
func (s *session) beat(call *server.Call) server.Work {
	h, err := s.find(call)
	if err == nil {
		err = s.host.takeBeat(h)
	}
	if err != nil {
		return s.refuse(call, err)
	}
	return reply(call, ok(call).Strs("lock", h.names()...))
}

func (d *Host) takeBeat(h *heldLease) error {
	if err := h.lease.Err(); err != nil {
		return err
	}
	if h.heartbeat == nil {
		return fmt.Errorf("%s: %w: BEAT for a lock that was taken without beat=", h.waiter.Label(), errOption)
	}
	if h.noteBeat(d.Clock()) {
		h.lease.Lose(redlock.LostBeat)
	}
	return h.lease.Err()
}
