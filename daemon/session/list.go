package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// list may wait for another LIST of the same user, so it does not run on the goroutine that reads the
// connection.
func (s *session) list(call *server.Call) server.Work {
	answer := s.listAll
	if call.All {
		answer = s.listFleet
	}
	return workFunc(func() { s.oneAtATime(call, func() { answer(call) }) })
}

// oneAtATime writes one long answer of a user at a time, because a user can have many connections.
// Only requests of the same user wait meanwhile, until their clients cancel them.
func (s *session) oneAtATime(call *server.Call, answer func()) {
	select {
	case s.listing <- struct{}{}:
	case <-call.Context().Done():
		s.refuse(call, context.Cause(call.Context()))
		return
	}
	defer func() { <-s.listing }()
	if s.host.Limits.Unread(s.uid) > maxUnread {
		s.refuse(call, errUnread)
		return
	}
	answer()
}

// listAll shows the leases and waiters of this daemon that the client may see, without their
// secrets. It shows a lost lease while no other client can get the lock.
func (s *session) listAll(call *server.Call) {
	d := s.host
	holdings := d.allLeases()
	slices.SortFunc(holdings, func(a, b *heldLease) int {
		return cmp.Or(slices.Compare(a.Waiter.Names, b.Waiter.Names), cmp.Compare(a.Asked, b.Asked))
	})
	n, view := 0, s.view()
	for _, h := range holdings {
		names, state, left := view.VisibleNames(h.Waiter.Requester.UID, h.Waiter.Names), "held", h.lease.Validity()
		switch {
		case h.lease.Err() != nil:
			state, left = "lost", h.lease.TimeToRelease()
		case d.isKept(h):
			state = "kept"
		}
		if names != nil && (state != "lost" || left > 0) {
			line := slotField(s.listLine(call, names, &h.Waiter, d.mode(h), state, h.lease.Since()), h.lease.Slot())
			call.Line(s.host.goneField(s.host.keptField(line.Int("fence", int64(h.lease.Fence())).Ms("ttl", left), h), h))
			n++
		}
	}
	for _, p := range s.host.Waiting() {
		if names := view.VisibleNames(p.Requester.UID, p.Names); names != nil {
			call.Line(s.listLine(call, names, p, p.Kind, "waiting", p.Requester.Asked))
			n++
		}
	}
	call.Reply(call.OK().Int("n", int64(n)))
}

// listFleet answers LIST all=yes: one page of the locks of all hosts that the client may inspect.
// The next page is another request, so the list ends when its client is gone.
func (s *session) listFleet(call *server.Call) {
	view := s.view()
	if err := view.PermitListAll(); err != nil {
		s.deny(call, err)
		return
	}
	page, err := s.host.Nodes.Scan(call.Context(), call.From)
	if err != nil {
		s.refuse(call, err)
		return
	}
	waiting, n := s.host.localWaits(), 0
	for i := range page.Locks {
		if lock := &page.Locks[i]; ipc.CheckName(lock.Name) == nil && view.MayInspect(lock.Name) {
			n += s.fleetLines(call, lock, waiting[lock.Name])
		}
	}
	r := call.OK().Int("n", int64(n)).Int("walked", int64(page.Walked)).Int("walks", int64(page.Walks))
	if page.Next != "" {
		r.Str("next", page.Next)
	}
	call.Reply(r)
}

// localWaits returns the names that clients of this host wait for, and for how long the first client
// of each has waited.
func (d *Host) localWaits() map[string]time.Duration {
	names := map[string]time.Duration{}
	for _, w := range d.Waiting() {
		for _, name := range w.Names {
			names[name] = max(names[name], d.waitOf(w))
		}
	}
	return names
}

// waitOf returns for how long a client has waited: more than 0.
func (d *Host) waitOf(w *locktable.Waiter) time.Duration {
	return max(d.Clock()-w.Requester.Asked, 1)
}

// fleetLines adds a line for each holder of a lock, and returns how many. here is for how long
// clients of this host have waited for the lock; 0: none waits.
func (s *session) fleetLines(call *server.Call, lock *redlock.StoredLock, here time.Duration) int {
	nodes := int64(len(s.host.Cfg.Quorum.Nodes))
	hosts := s.host.waitingHosts(lock.Waiters, here)
	line := func(state string) *ipc.Response {
		return new(ipc.Response).Line(call.Tag).Str("lock", lock.Name).Str("state", state)
	}
	waiters := func(r *ipc.Response) *ipc.Response {
		if hosts != nil {
			waitingFields(r.Str("wanted", "yes"), hosts)
		}
		return r
	}
	if lock.Many {
		call.Line(waiters(line("held").Str("mode", modeOf(true)).Str("many", "yes").Int("nodes", nodes)))
		return 1
	}
	for i := range lock.Holdings {
		h := &lock.Holdings[i]
		state := "held"
		if h.Waiting {
			state = "turn"
		}
		here := s.host.onNodes(h)
		r := slotField(slotsField(line(state).Str("mode", modeOf(h.Shared)), h.Slots), h.Slot)
		holderFields(r, s.host.currentHolder(h, here))
		noteField(s.host.goneField(ttlField(r, h.TTL).Int("held", int64(h.Held)).Int("nodes", nodes), here), here)
		call.Line(waiters(r))
	}
	return len(lock.Holdings)
}

// Locks returns the leases and waiters of this host for the status page, without ids, owners and
// notes.
func (d *Host) Locks() (locks []metrics.Lock) {
	show := func(w *locktable.Waiter, mode, state string, since time.Duration) {
		locks = append(locks, metrics.Lock{Names: w.Names, State: state, Mode: mode, User: w.Requester.User, PID: w.Requester.PID, Since: d.Clock() - since})
	}
	for _, h := range d.allLeases() {
		mode := pageMode(d.mode(h), h.lease.Slot())
		switch {
		case d.isKept(h):
			show(&h.Waiter, mode, "kept", h.lease.Since())
		case h.lease.Err() == nil:
			show(&h.Waiter, mode, "held", h.lease.Since())
		case h.lease.TimeToRelease() > 0:
			show(&h.Waiter, mode, "lost", h.lease.Since())
		}
	}
	for _, w := range d.Waiting() {
		show(w, pageMode(w.Kind, 0), "waiting", w.Requester.Asked)
	}
	return locks
}

// pageMode returns the mode for the status page. A waiter has no slot yet: 0.
func pageMode(kind locktable.Kind, slot int) string {
	switch {
	case kind.Slots == 0:
		return modeOf(kind.Shared)
	case slot == 0:
		return fmt.Sprintf("one of %d slots", kind.Slots)
	}
	return fmt.Sprintf("slot %d of %d", slot, kind.Slots)
}

// counts returns how many leases and waiters of this daemon LIST would show the client.
func (d *Host) counts(view access.View) (leases, waiters int) {
	for _, h := range d.allLeases() {
		if h.lease.Err() == nil && view.VisibleNames(h.Waiter.Requester.UID, h.Waiter.Names) != nil {
			leases++
		}
	}
	for _, p := range d.Waiting() {
		if view.VisibleNames(p.Requester.UID, p.Names) != nil {
			waiters++
		}
	}
	return leases, waiters
}

func (s *session) listLine(call *server.Call, names []string, p *locktable.Waiter, kind locktable.Kind, state string, since time.Duration) *ipc.Response {
	who := p.Requester
	line := new(ipc.Response).Line(call.Tag).Strs("lock", names...).Str("state", state).Str("mode", modeOf(kind.Shared))
	pidField(slotsField(line, int(kind.Slots)), who.PID).Str("user", who.User).Ms("since", s.host.Clock()-since)
	if who.Note != "" {
		line.Str("note", who.Note)
	}
	return line
}
