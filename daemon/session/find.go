package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// find returns the lease that a request names. lease= and pid= find it from any connection.
// Names find it on the connection that locked it; they must be the same names in the same
// order.
func (s *session) find(call *server.Call) (*heldLease, error) {
	h, err := s.lookUp(call)
	switch {
	case err != nil:
		return nil, err
	case h != nil && s.host.wasLostLongAgo(h):
		s.host.forget(h)
	case h != nil && call.Has(ipc.OptLease) && s.host.isKept(h): // it is not found by its names
	case h != nil && call.Has(ipc.OptLease|ipc.OptOwner) && call.Owner != h.Owner:
		return nil, badOption("owner=%s: the lease was taken with another owner=; lease= alone is enough", call.Owner)
	case h != nil && (len(call.Names) == 0 || slices.Equal(call.Names, h.Waiter.Names)):
		return h, nil
	case h != nil && call.Has(ipc.OptLease):
	case h != nil:
		return nil, fmt.Errorf("%s: %w under these names, but under %s: use exactly those",
			strings.Join(call.Names, ","), errNotHeld, strings.Join(h.Waiter.Names, ","))
	}
	return nil, notFoundError(call)
}

// rememberLossFor is how long CHECK reports a lost lease on a connection that stays open.
const rememberLossFor = time.Hour

// wasLostLongAgo reports whether a lease was lost too long ago for a client to ask about it.
func (d *Host) wasLostLongAgo(h *heldLease) bool {
	lostAt := time.Duration(h.lostAt.Load())
	return lostAt != 0 && d.Clock()-lostAt > rememberLossFor
}

// lookUp finds the lease by lease=, by pid= or by names: the first of these that the request has.
// It returns nil if there is none.
func (s *session) lookUp(call *server.Call) (*heldLease, error) {
	switch {
	case call.Has(ipc.OptLease):
		return s.host.leaseByID(call.Lease), nil
	case call.Has(ipc.OptPID):
		return s.heldByPID(call)
	}
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	own := leaseOf(s.client.Find(0, call.Owner, call.Names[0]))
	if own != nil && own.lease.Err() == nil {
		return own, nil
	}
	h, err := s.processLeaseLocked(call)
	if err == nil && own != nil && (h == nil || h.lease.Err() != nil) {
		return own, nil
	}
	return h, err
}

// processLeaseLocked returns the lease of a process (hold=pid) whose loss this connection reports.
func (s *session) processLeaseLocked(call *server.Call) (*heldLease, error) {
	var all []*heldLease
	for l := range s.client.Reports() {
		if l.Owner == call.Owner && slices.Contains(l.Waiter.Names, call.Names[0]) {
			all = append(all, leaseOf(l))
		}
	}
	held := heldElseLost(all)
	switch {
	case len(held) == 0:
		return nil, nil
	case len(held) > 1 && held[0].lease.Err() == nil:
		return nil, badOption("%s: %d processes hold it, so pid= is needed, or lease=", call.Names[0], len(held))
	}
	return held[0], nil
}

// heldElseLost returns the held leases of all. If none is held, it returns all: they were lost.
func heldElseLost(all []*heldLease) (held []*heldLease) {
	for _, h := range all {
		if h.lease.Err() == nil {
			held = append(held, h)
		}
	}
	if len(held) == 0 {
		return all
	}
	return held
}

// heldByPID returns a lease that this user took for a process on any connection: the one
// with the names, or the only one.
func (s *session) heldByPID(call *server.Call) (h *heldLease, err error) {
	pid, err := s.pidOf(call.PID)
	if err != nil {
		return nil, err
	}
	p := s.host.Processes.find(pid)
	switch {
	case p != nil && len(call.Names) == 0:
		h, err = s.onlyOne(p, call)
	case p != nil:
		s.host.mu.Lock()
		h = leaseOf(p.client.Find(s.uid, call.Owner, call.Names[0]))
		s.host.mu.Unlock()
	}
	if h == nil && err == nil && s.isOfOtherUser(pid) {
		err = fmt.Errorf("pid=%d: %w", call.PID, errOtherUser)
	}
	return h, err
}

// onlyOne returns the only lease of this user and owner that a process holds. If it holds
// none, it returns the only one that it lost.
func (s *session) onlyOne(p *heldProcess, call *server.Call) (*heldLease, error) {
	var all []*heldLease
	s.host.mu.Lock()
	for l := range p.client.All() {
		if l.UID == s.uid && l.Owner == call.Owner {
			all = append(all, leaseOf(l))
		}
	}
	s.host.mu.Unlock()
	held := heldElseLost(all)
	switch len(held) {
	case 0:
		return nil, nil
	case 1:
		return held[0], nil
	}
	return nil, badOption("pid=%d: it holds %d locks, so a name is needed, or lease=", call.PID, len(held))
}

// notFoundError returns an error that names what the request looked for.
func notFoundError(call *server.Call) error {
	switch {
	case call.Has(ipc.OptPID):
		return notHeldByPIDError(call)
	case call.Has(ipc.OptLease):
		return unknownIDError(call.Names)
	}
	return fmt.Errorf("%s: %w by this owner on this connection: WHO shows who holds it", strings.Join(call.Names, ","), errNotHeld)
}
