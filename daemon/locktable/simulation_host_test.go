package locktable

import (
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// simRecord is the record of a lease in the state file, after package state has applied all.
type simRecord struct {
	Recorded
	l             *simLease // as it was granted: names, kind, requester, options
	grant         *simGrant
	conn, process *simConn // process: nil if there is none
	further       []string

	// Since a restart: see Table.Restore.
	due  Due
	open bool
}

// simConn is a connection, or a process, with its client.
type simConn struct {
	Client
	number  int
	pending int // requests under way
	ending  bool
	cut     bool // with ending: by the daemon
	ended   bool
	broken  bool // by a restart: its client must connect again
}

func (s *tableSim) connect() *simConn {
	s.numbers++
	c := &simConn{number: s.numbers}
	c.Of = c
	s.conns = append(s.conns, c)
	s.opened[uint64(c.number)] = &RecordedConn{Stored: s.chance(70)}
	return c
}

// apply applies an event, and does what is due.
func (s *tableSim) apply(p *simTask, l *simLease, event Event) Due {
	due := s.change(l, event)
	s.perform(p, l, due)
	return due
}

func (s *tableSim) change(l *simLease, event Event) Due {
	before := l.Life
	due := s.table.Apply(&l.Lease, event)
	if due.Has(LeaveQueue) {
		delete(s.counts, l)
	}
	s.trace("lease %d: event %d, %v becomes %v, effects %b", l.number, event, before, l.Life, due.Effects)
	return due
}

// recorded is apply for an event that is recorded before anything is due.
func (s *tableSim) recorded(p *simTask, l *simLease, event Event) Due {
	due := s.change(l, event)
	s.record(l)
	s.perform(p, l, due)
	return due
}

// record records a lease, as Host.record of package session does.
func (s *tableSim) record(l *simLease) {
	r := s.records[l.number]
	if r == nil || r.Was.State == Acquiring { // the record of the grant has it
		return
	}
	if r.Was, r.further = l.Life, l.AnsweredFurthers(); l.grant.err == errSimLost {
		r.Was.State = Lost
	}
	r.Was.Memory = NotRemembered
}

// perform does what Host.perform of package session does.
func (s *tableSim) perform(p *simTask, l *simLease, due Due) {
	for do := due.Effects; do != 0; do &= do - 1 {
		p.pause()
		switch do & -do {
		case StartHeartbeat, CountLoss, LogCut, ReleaseRevoked, LeaveProcess:
		case SendLost:
			reporter := l.Reporter()
			if reporter != nil {
				if l.losts++; l.oks == 0 || l.losts > 1 {
					s.fail("lost", "lease %d: LOST number %d after %d OK", l.number, l.losts, l.oks)
				}
				l.believed = false
			}
			s.recorded(p, l, LossReported)
		case ForgetLoss:
			s.forgetLater(p, l)
		case BeginRelease: // endHold begins it
		case LeaveAtDeadline:
			if left := l.grant.Validity(); left > 0 && !l.grant.forced {
				s.after(left, func(p *simTask) { s.apply(p, l, DeadlinePassed) })
			} else {
				s.apply(p, l, DeadlinePassed)
			}
		case LeaveQueue:
			if l.leaves++; l.leaves > 1 {
				s.fail("queue", "lease %d leaves the queue again", l.number)
			}
			s.order = slices.DeleteFunc(s.order, func(other *simLease) bool { return other == l })
			s.queue.Leave(&l.Waiter, nil)
		case CountHeldTime:
			if l.heldTimes++; l.heldTimes > 1 || l.oks == 0 && l.grant.err == errSimLost {
				s.fail("held", "lease %d counts as held %d times, with %d OK", l.number, l.heldTimes, l.oks)
			}
		case RememberLoss:
			if oldest := s.table.Remember(&l.Lease); oldest != nil {
				s.apply(p, simOf(oldest), Dropped)
			}
		case DeleteRecord:
			delete(s.records, l.number)
		case DelayRelease:
			s.updateOwner(l)
			s.releaseWhenMinPassed(l)
		default:
			s.fail("effect", "no case for %b", do&-do)
		}
	}
}

func (s *tableSim) updateOwner(l *simLease) {
	s.queue.ChangeOwner(&l.Waiter, l.Owns(), l.Life.State == Kept)
}

func (s *tableSim) forgetLater(p *simTask, l *simLease) {
	if left := l.grant.until - s.now; left > 0 && !l.grant.forced {
		s.after(left, func(p *simTask) { s.apply(p, l, Dropped) })
		return
	}
	s.apply(p, l, Dropped)
}

func (s *tableSim) releaseWhenMinPassed(l *simLease) {
	s.after(l.minLeft(s.now), func(p *simTask) {
		if l.Life.State == Kept && l.minLeft(s.now) > 0 {
			s.releaseWhenMinPassed(l)
			return
		}
		s.withoutClient(p, l, s.endHold(p, l, MinPassed))
	})
}

// endWithout does what Host.endWithout of package session does.
func (s *tableSim) endWithout(p *simTask, l *simLease, client *Client, ending Ending) {
	p.pause()
	switch ending {
	case EndRevoked, EndLoss:
		s.forgetLater(p, l)
	case LetExpire:
		if l.minLeft(s.now) > 0 {
			l.min = max(l.min, s.now+simTTL-l.grant.since)
			s.releaseAbandoned(p, l, client)
			break
		}
		s.loseSilently(p, l)
	case Linger:
		s.after(20*time.Millisecond, func(p *simTask) { s.releaseAbandoned(p, l, client) })
	case ReleaseUnclaimed:
		l.min = max(l.min, s.now+simTTL-l.grant.since)
		l.cutUntil = s.now + simTTL
		s.after(l.minLeft(s.now), func(p *simTask) { s.releaseAbandoned(p, l, client) })
	case Release:
		s.releaseAbandoned(p, l, client)
	}
}

func (s *tableSim) releaseAbandoned(p *simTask, l *simLease, client *Client) {
	if l.Holder() == client {
		s.withoutClient(p, l, s.endHold(p, l, ClientIsGone))
	}
}

// withoutClient ends what no client waits for.
func (s *tableSim) withoutClient(p *simTask, l *simLease, due Due) {
	if due.Has(BeginRelease) && l.refused {
		s.apply(p, l, Dropped)
	}
}

// endHold does what Host.endHold of package session does.
func (s *tableSim) endHold(p *simTask, l *simLease, event Event) Due {
	if l.minLeft(s.now) > 0 && l.Life.State == Held {
		event = MinNotPassed
	}
	due := s.recorded(p, l, event)
	if due.Has(BeginRelease) {
		s.beginRelease(p, l)
	}
	return due
}

// beginRelease releases a lease, or passes it on.
func (s *tableSim) beginRelease(p *simTask, l *simLease) {
	p.pause()
	next := s.queue.ClaimNext(&l.Waiter, l.grant.since, s.chance(20), s.now)
	if next != nil {
		s.claims[next] = true
		p.pause()
		var attempt *redlock.PendingAttempt
		if l.grant.err == nil && s.chance(80) {
			attempt = &redlock.PendingAttempt{}
			s.endGrant(l)
			if s.chance(50) {
				s.begun[attempt] = s.newGrant(simOfWaiter(next), l.grant.token)
			} else {
				s.drop(l.grant.token)
				s.begun[attempt] = s.newGrant(simOfWaiter(next), nil)
			}
		}
		p.pause()
		delete(s.claims, next)
		if attempt == nil {
			s.queue.Unclaim(next)
		} else if !s.queue.Deliver(next, attempt) {
			s.drop(s.begun[attempt].token)
			delete(s.records, simOfWaiter(next).number)
		}
		if attempt != nil {
			s.apply(p, l, ReleaseBegun)
			s.afterRelease(l)
			return
		}
	}
	if l.grant.err != nil {
		l.refused = true
		s.apply(p, l, ReleaseRefused)
		return
	}
	s.endGrant(l)
	s.drop(l.grant.token)
	s.apply(p, l, ReleaseBegun)
	s.afterRelease(l)
}

func simOfWaiter(w *Waiter) *simLease { return w.backing.(*simLease) }

// endGrant releases a lease on the nodes.
func (s *tableSim) endGrant(l *simLease) {
	l.grant.err = errSimReleased
	if l.releases++; l.releases > 1 {
		s.fail("release", "lease %d is released again", l.number)
	}
	if l.minLeft(s.now) > 0 {
		s.fail("min", "lease %d is released before min= has passed", l.number)
	}
	if s.works(l) {
		s.fail("abandoned", "lease %d is released while its client works", l.number)
	}
}

// afterRelease forgets a released lease when the nodes have answered.
func (s *tableSim) afterRelease(l *simLease) {
	s.after(time.Duration(s.random.IntN(5))*time.Millisecond, func(p *simTask) {
		delete(s.records, l.number)
	})
}

// lose ends a lease that is held, and tells the daemon.
func (s *tableSim) lose(l *simLease, forced bool) {
	if l.grant.err != nil {
		return
	}
	l.grant.err, l.grant.forced = errSimLost, forced
	l.grant.until, l.grant.token.until = s.now+simGuard, s.now+simGuard
	if forced {
		s.drop(l.grant.token)
	}
	s.spawn(false, func(p *simTask) { s.recorded(p, l, WasLost) })
}

// loseSilently stops the extensions of a lease.
func (s *tableSim) loseSilently(p *simTask, l *simLease) {
	if l.grant.err == nil {
		l.grant.err = errSimLost
		l.grant.until, l.grant.token.until = s.now+simTTL, s.now+simTTL
	}
	if l.grant.err == errSimLost {
		s.recorded(p, l, ExtensionsEnded)
	}
}
