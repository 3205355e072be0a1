package locktable

import (
	"maps"
	"slices"

	"github.com/redlockd/redlockd/redlock"
)

// restart kills the daemon, and starts it again with what the state file and the nodes have.
func (s *tableSim) restart() {
	s.trace("restart")
	s.started++
	if s.calm = 150; s.chance(30) {
		s.calm = 10
	}
	s.tasks = slices.DeleteFunc(s.tasks, func(p *simTask) bool {
		if !p.isClient {
			p.stop()
		}
		return !p.isClient
	})
	s.timers = slices.DeleteFunc(s.timers, func(timer simTimer) bool { return timer.run != nil })
	s.table, s.queue, s.order = NewTable(), New(), nil
	s.table.SetLimits(s.bounds)
	s.claims, s.begun = map[*Waiter]bool{}, map[*redlock.PendingAttempt]*simGrant{}
	s.counts = map[*simLease]bool{}
	s.asks = slices.DeleteFunc(s.asks, func(a *simAsk) bool { return a.conn.ending })
	restart := &Restart{Complete: s.chance(85), Marked: s.chance(80)}
	for _, c := range s.conns {
		c.Client, c.pending = Client{Of: c, IsProcess: c.IsProcess}, 0
		if c.ended {
			continue
		}
		stays := c.IsProcess || restart.Complete && restart.Marked && s.opened[uint64(c.number)] != nil && s.opened[uint64(c.number)].Stored
		c.broken = !c.ending && !stays
		c.ended = c.ending || c.broken
	}
	restart.Conns = s.recordedConns(restart)
	s.spawn(false, func(p *simTask) { s.restore(p, restart) })
	s.boot = s.tasks[len(s.tasks)-1]
}

// recordedConns returns the connections in the state file, with those that continue. If records are
// missing, the daemon ends all that the service manager has.
func (s *tableSim) recordedConns(restart *Restart) map[uint64]RecordedConn {
	all := map[uint64]RecordedConn{}
	for _, c := range s.conns {
		recorded := s.opened[uint64(c.number)]
		if recorded == nil || c.IsProcess {
			continue
		}
		switch {
		case c.broken && restart.Marked:
			recorded.Stored = false
		case c.cut && !restart.Complete && s.chance(50):
			recorded.Stored = true // the record of the cut is missing
		}
		if all[uint64(c.number)] = *recorded; !c.ended {
			all[uint64(c.number)] = RecordedConn{Stored: true, Client: &c.Client}
		}
	}
	return all
}

// restore does what package session does at its start.
func (s *tableSim) restore(p *simTask, restart *Restart) {
	var all, held []*Recorded
	var continued []*simRecord
	numbers := slices.Sorted(maps.Keys(s.records))
	for _, number := range numbers {
		r := s.records[number]
		r.MinLeft = r.l.min > s.now-r.grant.since
		r.IsFree, r.IsUnclaimed = false, false
		all = append(all, &r.Recorded)
	}
	for i, fate := range restart.Fates(all) {
		r := s.records[numbers[i]]
		switch fate {
		case Continues:
			continued, held = append(continued, r), append(held, &r.Recorded)
			s.restoreLease(p, restart, r.l, r)
			continue
		case Abandoned:
			if s.drop(r.grant.token); r.Was.State == Releasing && r.grant.err == nil {
				s.endGrant(r.l)
			}
		case WasPassed:
			if !restart.Complete && r.grant.token.until == 0 {
				r.grant.token.until = s.now + simTTL
			}
		}
		delete(s.records, numbers[i])
	}
	ended, unstored := restart.EndedConns(held)
	for _, number := range ended {
		delete(s.opened, number)
	}
	for _, number := range unstored {
		s.opened[number].Stored = false
	}
	for _, r := range continued {
		client := r.l.Holder()
		s.perform(p, r.l, r.due)
		s.endWithout(p, r.l, client, r.Ending(&r.l.Lease))
		if !r.open {
			s.clientEnded(p, r.l, client, ClientEnd{Process: true})
		}
	}
	s.resumes = slices.DeleteFunc(s.resumes, func(r *simResume) bool { return r.to.ended })
	for _, r := range s.resumes {
		r.to.pending++
		s.spawn(false, func(p *simTask) { s.runResume(p, r) })
	}
	for _, a := range slices.Clone(s.asks) {
		if !a.conn.ended {
			a.conn.pending++
			a.isAllowed = true
			s.spawn(false, func(p *simTask) { s.lock(p, a) })
		}
	}
}

// restoreLease continues a lease.
func (s *tableSim) restoreLease(p *simTask, restart *Restart, l *simLease, r *simRecord) {
	names, kind := slices.Clone(l.Waiter.Names), l.Waiter.Kind
	l.Lease = Lease{Requester: l.Requester, OfProcess: l.OfProcess}
	l.Init(names, kind, false, l)
	l.isDone, l.failure, l.refused, l.leaves, l.heldTimes = true, nil, false, 0, 0
	if l.oks = max(l.oks, 1); r.Was.Knows != KnowsLoss {
		l.losts = 0
	}
	l.SetFurthers(r.further)
	var process *Client
	if r.process != nil && !r.process.ended {
		process = &r.process.Client
	}
	extended := restart.Claim(&l.Lease, &r.Recorded, process, process == nil, !l.ttl)
	if r.OfProcess && process == nil || r.NeedsConn && r.conn.ending && !r.conn.cut {
		l.believed = false
	}
	isResumed := slices.ContainsFunc(s.resumes, func(r *simResume) bool { return r.l == l })
	if l.view = nil; l.Reporter() == &r.conn.Client && !isResumed {
		l.view = r.conn
	}
	var replaced []*Lease
	r.due, replaced, r.open = s.table.Restore(&l.Lease, &r.Recorded)
	for _, old := range replaced {
		s.apply(p, simOf(old), Dropped)
	}
	if r.Was.State != Lost {
		s.counts[l] = false
		s.queue.Restore(&l.Waiter, r.Was.State == Kept)
		s.order = append(s.order, l)
	}
	switch {
	case l.grant.err != nil && r.Was.State != Lost:
		s.spawn(false, func(p *simTask) { s.recorded(p, l, WasLost) })
	case l.grant.err != nil:
	case extended:
		l.grant.until, l.grant.token.until = 0, 0
	default:
		if l.grant.until == 0 {
			l.grant.until = s.now + simTTL
		}
		l.grant.token.until = l.grant.until
		s.loseAt(l)
	}
}
