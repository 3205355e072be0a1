package locktable

import (
	"slices"
)

// check checks what must always hold.
func (s *tableSim) check() {
	for uid := range 2 {
		if got, want := s.table.users[uid], s.counted(uid); got != want {
			s.fail("limits", "counted for user %d: %+v, want %+v", uid, got, want)
		}
	}
	for i, a := range s.leases {
		if !s.works(a) {
			continue
		}
		for _, b := range s.leases[:i] {
			if s.works(b) && Overlap(&a.Waiter, &b.Waiter) && (a.Mode() != b.Mode() || a.Mode().Exclusive()) {
				s.fail("exclusion", "the clients of leases %d and %d work with %v and %v", b.number, a.number, b.Waiter.Names, a.Waiter.Names)
			}
		}
		if a.grant.err == nil && !slices.Contains(s.tokens, a.grant.token) {
			s.fail("exclusion", "the client of lease %d works, and other hosts can get the lock", a.number)
		}
		if c := a.view; c != nil && !c.ending && a.grant.err == nil && a.oks > 0 {
			if _, reports := c.reports[&a.Lease]; !reports && c.Find(a.UID, a.Owner, a.Waiter.Names[0]) != &a.Lease {
				s.fail("found", "the connection of lease %d does not find it", a.number)
			}
			if s.table.ByID(a.grant.id) != &a.Lease {
				s.fail("found", "lease %d is not found by its id", a.number)
			}
		}
	}
	for i, l := range s.order {
		if s.claims[&l.Waiter] || l.Waiter.attempt != nil || l.Waiter.grant == isWithdrawn || l.Waiter.isGranted() || l.grant != nil {
			continue
		}
		full, blocked := map[string]int{}, false
		for _, ahead := range s.order[:i] {
			for _, name := range ahead.Waiter.Names {
				if !slices.Contains(l.Waiter.Names, name) {
					continue
				}
				full[name]++
				blocked = blocked || ahead.Waiter.mode() != l.Waiter.Kind || l.Waiter.Kind.Exclusive() ||
					l.Waiter.Kind.Slots > 0 && full[name] >= int(l.Waiter.Kind.Slots)
			}
		}
		if l.Waiter.isReady == blocked {
			s.fail("order", "waiter %d is ready: %v, and blocked: %v", l.number, l.Waiter.isReady, blocked)
		}
	}
}

// works reports whether a client works with a lease that FORCE did not revoke.
func (s *tableSim) works(l *simLease) bool {
	return l.believed && !l.grant.forced && (l.grant.until == 0 || s.now < l.grant.until) && (l.cutUntil == 0 || s.now < l.cutUntil)
}

// checkOrder checks that a lease overtook no earlier waiter.
func (s *tableSim) checkOrder(l *simLease) {
	for _, ahead := range s.order {
		if ahead == l {
			return
		}
		conflicts := ahead.Waiter.mode() != l.Waiter.Kind || l.Waiter.Kind.Exclusive()
		if conflicts && Overlap(&ahead.Waiter, &l.Waiter) && ahead.Waiter.grant == notGranted && ahead.grant == nil {
			s.fail("overtaken", "waiter %d is overtaken by %d", ahead.number, l.number)
		}
	}
}

// checkTold checks that a connection was told of the losses of its leases.
func (s *tableSim) checkTold(c *simConn) {
	for _, l := range s.leases {
		if l.view == c && l.oks > 0 && l.grant.err == errSimLost && l.Life.State != Kept && l.releases == 0 && l.believed && l.cutUntil == 0 {
			s.fail("told", "the client of lease %d was not told of its loss", l.number)
		}
	}
}

// isIdle reports whether the daemon has nothing to do at this moment.
func (s *tableSim) isIdle() bool {
	return !slices.ContainsFunc(s.tasks, func(p *simTask) bool { return !p.isClient && (p.waits == nil || p.waits()) })
}

// checkEmpty checks that nothing is left when all clients are gone.
func (s *tableSim) checkEmpty() {
	if len(s.tasks) > 0 {
		s.fail("stuck", "%d clients or requests wait for ever", len(s.tasks))
	}
	if n := len(s.table.byID) + len(s.table.passed) + len(s.table.unclaimed); n > 0 {
		for _, l := range s.table.byID {
			s.trace("left: lease %d, life %v, ttl %v, process %v, reporter %v, until %v", simOf(l).number, l.Life, simOf(l).ttl, l.OfProcess, l.reporter != nil, simOf(l).grant.until)
		}
		s.fail("left", "the table has %d leases, %d of a pass, %d unclaimed", len(s.table.byID), len(s.table.passed), len(s.table.unclaimed))
	}
	if n := len(s.queue.names) + len(s.queue.participants) + len(s.queue.waiters.entries) + len(s.order); n > 0 {
		s.fail("left", "the queue has %d names, %d participants, %d waiters; the simulation %d", len(s.queue.names), len(s.queue.participants), len(s.queue.waiters.entries), len(s.order))
	}
	if !s.table.CountsNothing() {
		s.fail("limits", "left: %+v", s.table.users)
	}
	for _, c := range s.conns {
		if n := len(c.leases) + len(c.requests); n > 0 && c.ended {
			s.fail("left", "a client that has ended has %d leases, %d LOCKs", len(c.leases), len(c.requests))
		}
	}
	if len(s.records) > 0 {
		s.fail("records", "%d leases are left in the state file", len(s.records))
	}
	s.tokens = slices.DeleteFunc(s.tokens, func(token *simToken) bool { return token.until != 0 })
	if len(s.tokens) > 0 {
		s.fail("debris", "%d leases are left on the nodes, for example %v", len(s.tokens), s.tokens[0].names)
	}
}
