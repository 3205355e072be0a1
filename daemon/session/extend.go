package session

import (
	"context"
	"fmt"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// extend extends a lease now.
func (s *session) extend(call *server.Call) server.Work {
	h, err := s.find(call)
	if err == nil && call.Has(ipc.OptTTL) {
		err = checkTTL(call.TTL, s.host.Cfg.Quorum.MaxTTL)
	}
	if err == nil && call.Has(ipc.OptMode) && call.Mode == ipc.Exclusive && s.host.mode(h) != (locktable.Kind{}) {
		err = badOption("mode=exclusive: a shared lease cannot become exclusive, because two readers that both want that would wait for each other: UNLOCK it, and LOCK it exclusively")
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
	extend := e.h.lease.Extend
	if e.call.Has(ipc.OptMode) && e.call.Mode == ipc.Shared {
		extend = func(ctx context.Context, ttl time.Duration) error { return e.s.host.downgrade(ctx, e.h, ttl) }
	}
	if err := extend(e.call.Context(), e.call.TTL); err != nil {
		e.s.refuse(e.call, err)
		return
	}
	e.call.Reply(e.s.host.stillHeldFields(e.call, e.h))
}

// downgrade makes a lease shared and extends it. It records that before it asks a node: a later
// daemon then tells the nodes.
func (d *Host) downgrade(ctx context.Context, h *heldLease, ttl time.Duration) error {
	err := h.lease.Downgrade(ctx, ttl, func() error {
		d.mu.Lock()
		err := h.becomeSharedLocked()
		d.mu.Unlock()
		if err == nil {
			d.Journal.Shared(h.number)
		}
		return err
	})
	if !h.lease.Shared() {
		return err
	}
	d.lockQueue(&h.Waiter)
	d.queue.Downgrade(&h.Waiter)
	d.unlockQueue(&h.Waiter)
	if err != nil && h.lease.Err() == nil {
		return fmt.Errorf("%w; the lease is shared from now on, and each extension asks the nodes again to admit readers", err)
	}
	return err
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
	return reply(call, s.host.stillHeldFields(call, h))
}

// stillHeldFields returns the fields of the answers to CHECK and EXTEND. They include ttl and guard,
// because another process may have changed them.
func (d *Host) stillHeldFields(call *server.Call, h *heldLease) *ipc.Response {
	return d.countField(leaseFields(call, h), h)
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
	return reply(call, call.OK().Strs("lock", h.Waiter.Names...))
}

func (d *Host) takeBeat(h *heldLease) error {
	if err := h.lease.Err(); err != nil {
		return err
	}
	if h.heartbeat == nil {
		return badOption("%s: BEAT for a lock that was taken without beat=", h.Waiter.Label())
	}
	now := d.Clock()
	d.mu.Lock()
	late := h.heartbeat.noteBeatLocked(now)
	d.mu.Unlock()
	if late {
		h.lease.Lose(redlock.LostBeat)
	}
	return h.lease.Err()
}
