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
	return workFunc(func() {
		extend := h.lease.Extend
		if call.Has(ipc.OptMode) && call.Mode == ipc.Shared {
			extend = func(ctx context.Context, ttl time.Duration) error { return s.host.downgrade(ctx, h, ttl) }
		}
		if err := extend(call.Context(), call.TTL); err != nil {
			s.refuse(call, err)
			return
		}
		call.Reply(s.host.stillHeldFields(call, h))
	})
}

// downgrade makes a lease shared and extends it. It records that before it asks a node: a later
// daemon then tells the nodes.
func (d *Host) downgrade(ctx context.Context, h *heldLease, ttl time.Duration) error {
	err := h.lease.Downgrade(ctx, ttl, func() error {
		var err error
		d.record(h, func() (by uint64) {
			err = h.becomeSharedLocked()
			return 0
		})
		return err
	})
	if !h.lease.Shared() {
		return err
	}
	d.inQueue(&h.Waiter, func(q *locktable.Queue) { q.Downgrade(&h.Waiter) })
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
