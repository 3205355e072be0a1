package locktable

import (
	"errors"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// simAsk is a LOCK of a client.
type simAsk struct {
	s         *tableSim
	conn      *simConn
	process   *simConn // hold=pid
	uid       int
	isAllowed bool // the limits allowed it before a restart
	names     []string
	kind      Kind
	id        string
	reentrant bool
	patient   bool
	min       time.Duration
	lingers   bool
	ttl       bool
	deadline  time.Duration // of wait=
	cancelled bool

	answered bool
	lease    *simLease // nil: the LOCK failed
	err      error
}

func (a *simAsk) answer(l *simLease, err error) {
	if s := a.s; l != nil {
		s.trace("LOCK %v answered with lease %d by connection %d", a.names, l.number, a.conn.number)
	} else {
		s.trace("LOCK %v refused: %v", a.names, err)
	}
	a.answered, a.lease, a.err = true, l, err
	a.s.asks = slices.DeleteFunc(a.s.asks, func(other *simAsk) bool { return other == a })
	if err == nil {
		l.oks++
		if l.Reporter() == &a.conn.Client { // else a client has resumed it meanwhile
			l.view = a.conn
		}
	}
	a.conn.pending--
}

func (s *tableSim) isOver(a *simAsk) bool {
	return a.cancelled || a.conn.ending || a.process != nil && a.process.ending || s.now >= a.deadline
}

// lock handles a LOCK, as package session does.
func (s *tableSim) lock(p *simTask, a *simAsk) {
	l := &simLease{min: a.min, lingers: a.lingers, ttl: a.ttl}
	s.numbers++
	l.number, l.UID, l.ID, l.Owner = s.numbers, a.uid, a.id, "owner"
	l.Init(a.names, a.kind, a.patient, l)
	if holder := &a.conn.Client; a.process != nil {
		l.SetHolder(&a.process.Client, holder)
	} else {
		l.SetHolder(holder, holder)
	}
	if a.id != "" && a.process == nil && s.table.Unclaimed.Load() > 0 {
		if found := s.table.FindUnclaimed(&l.Lease); found != nil && s.table.TakeUnclaimed(&l.Lease, found) {
			a.answer(s.resume(p, simOf(found), a.conn))
			return
		}
	}
	ended := map[*Lease]bool{}
	for {
		if a.conn.HoldsOtherwise(&l.Lease) {
			a.answer(nil, errSimAlready)
			return
		}
		firsts := l.Holder().Begin(&l.Lease, ended)
		if firsts == nil {
			break
		}
		for _, first := range firsts {
			if s.join(p, a, l, simOf(first)) {
				return
			}
			ended[first] = true
		}
	}
	if err := s.charge(l, a.isAllowed); err != nil {
		l.Holder().End(&l.Lease)
		a.answer(nil, err)
		return
	}
	p.pause()
	if err := s.queue.Join(&l.Waiter); err != nil {
		s.endUngranted(p, a, l, err)
		return
	}
	s.order = append(s.order, l)
	if err := s.acquire(p, a, l); err != nil {
		if begun := s.queue.Withdraw(&l.Waiter); begun != nil {
			s.drop(s.begun[begun].token)
		}
		p.pause()
		s.order = slices.DeleteFunc(s.order, func(other *simLease) bool { return other == l })
		s.queue.Leave(&l.Waiter, nil)
		s.endUngranted(p, a, l, err)
		return
	}
	s.leases = append(s.leases, l)
	p.pause()
	due := s.table.Grant(&l.Lease)
	if s.counts[l] {
		s.counts[l] = false
	}
	r := s.records[l.number]
	r.conn, r.process, r.Was.State = a.conn, a.process, Held
	r.Conn, r.NeedsConn, r.OfProcess, r.Lingers = uint64(a.conn.number), !a.ttl && a.process == nil, a.process != nil, a.lingers
	s.record(l)
	s.perform(p, l, due)
	if l.leaves == 0 { // else it was lost meanwhile, and other clients can have the lock
		s.checkOrder(l)
	}
	s.queue.Granted(&l.Waiter)
	p.pause()
	replaced, open := s.table.Name(&l.Lease)
	l.Holder().End(&l.Lease)
	l.isDone = true
	for _, old := range replaced {
		s.apply(p, simOf(old), Dropped)
	}
	if !open {
		s.clientEnded(p, l, l.Holder(), ClientEnd{Process: true})
	}
	p.pause()
	if l.grant.err != nil {
		a.answer(nil, l.grant.err)
		s.apply(p, l, LossRemembered)
		return
	}
	a.answer(l, nil)
	l.believed = !a.conn.ending && (a.process == nil || !a.process.ending) && l.Life.State == Held
	p.pause()
	s.apply(p, l, GrantReported)
}

// charge counts a LOCK, and checks that the limits refuse it if and only if they are reached.
func (s *tableSim) charge(l *simLease, isAllowed bool) error {
	before, n := s.counted(l.UID), len(l.Waiter.Names)
	err := s.table.Charge(&l.Lease, isAllowed)
	s.checkAllowed(err, isAllowed, s.bounds.Leases > 0 && before.leases+n > s.bounds.Leases || s.bounds.Waiters > 0 && l.Waiter.Patient && before.waiters >= s.bounds.Waiters)
	if err == nil {
		s.counts[l] = l.Waiter.Patient
	}
	return err
}

// checkAllowed checks that a LOCK is refused only above a limit, and not if it was allowed before a
// restart.
func (s *tableSim) checkAllowed(err error, isAllowed, isAbove bool) {
	switch {
	case errors.Is(err, ErrLimit) && (isAllowed || !isAbove):
		s.fail("limits", "refused, and allowed before: %v: %v", isAllowed, err)
	case err == nil && isAbove && !isAllowed:
		s.fail("limits", "a LOCK is above the limit")
	}
}

// counted returns what the limits must count for a user.
func (s *tableSim) counted(uid int) (u usage) {
	for l, waits := range s.counts {
		if l.UID != uid {
			continue
		}
		if u.leases += len(l.Waiter.Names) + l.Count() - 1; waits {
			u.waiters++
		}
	}
	for _, l := range s.table.byID {
		if l.UID == uid && l.Life.Memory == Remembered {
			u.lost++
		}
	}
	return u
}

// endUngranted ends a LOCK that got no lease.
func (s *tableSim) endUngranted(p *simTask, a *simAsk, l *simLease, err error) {
	delete(s.records, l.number)
	due := s.table.Apply(&l.Lease, NotGranted)
	delete(s.counts, l)
	l.failure, l.isDone = err, true
	l.Holder().End(&l.Lease)
	s.perform(p, l, due)
	a.answer(nil, err)
}

// join handles a LOCK whose owner holds or wants a name already. It returns false if the first LOCK
// has ended.
func (s *tableSim) join(p *simTask, a *simAsk, l, first *simLease) bool {
	if first.isDone && (first.failure != nil || first.grant.err != nil) {
		return false
	}
	before := s.counted(first.UID).leases
	again, err := s.table.CountUp(&first.Lease, &l.Waiter, a.id, a.reentrant, a.isAllowed, errSimAlready)
	s.checkAllowed(err, a.isAllowed || again, s.bounds.Leases > 0 && before >= s.bounds.Leases)
	switch {
	case errors.Is(err, redlock.ErrReleased):
		return false
	case err != nil:
		a.answer(nil, err)
		return true
	}
	p.until(func() bool { return first.isDone || s.isOver(a) })
	if !first.isDone && !again && s.table.WithdrawCount(&first.Lease, a.id) {
		a.answer(nil, errSimCancelled)
		return true
	}
	p.until(func() bool { return first.isDone })
	if err = first.failure; err == nil {
		err = first.grant.err
	}
	if err == nil && !first.Counts(a.id) {
		err = errSimReleased
	}
	if err != nil {
		a.answer(nil, err)
		return true
	}
	first.Answer(a.id)
	s.record(first)
	a.answer(first, nil)
	isGone := a.conn.ending || first.OfProcess && first.Holder().isClosed
	first.believed = first.losts == 0 && !isGone && first.grant.err == nil && first.Life.State == Held // else its client has unlocked it meanwhile
	p.pause()
	s.apply(p, first, GrantReported)
	return true
}

// acquire waits for its turn on this host, and then for the nodes.
func (s *tableSim) acquire(p *simTask, a *simAsk, l *simLease) error {
	isReady := func() bool { return l.Waiter.Ready() == nil || isClosed(l.Waiter.Ready()) }
	if p.pause(); !isReady() {
		if !a.patient {
			return errSimHeld
		}
		if p.until(func() bool { return isReady() || s.isOver(a) }); !isReady() || s.isOver(a) && s.chance(50) {
			return errSimCancelled
		}
	}
	p.pause()
	if attempt, _ := s.queue.TakeAttempt(&l.Waiter); attempt != nil {
		l.grant = s.begun[attempt]
		s.limitTTL(l)
		return nil
	}
	for !s.free(l) {
		if s.queue.NoteFailure(&l.Waiter, redlock.ErrHeld); !a.patient {
			return errSimHeld
		}
		if p.until(func() bool { return s.free(l) || s.isOver(a) }); s.isOver(a) {
			return errSimCancelled
		}
	}
	l.grant = s.newGrant(l, nil)
	s.limitTTL(l)
	return nil
}

// limitTTL makes a lease with hold=ttl end by itself.
func (s *tableSim) limitTTL(l *simLease) {
	if l.ttl {
		l.grant.until = s.now + simTTL
		l.grant.token.until = l.grant.until
		s.loseAt(l)
	}
}

// loseAt ends a lease that nobody extends at its deadline.
func (s *tableSim) loseAt(l *simLease) {
	grant, until := l.grant, l.grant.until
	s.after(until-s.now, func(p *simTask) {
		if l.grant == grant && grant.err == nil && grant.until == until {
			if grant.err = errSimLost; l.minLeft(s.now) > 0 {
				s.fail("min", "lease %d expires before min= has passed", l.number)
			}
			s.recorded(p, l, WasLost)
		}
	})
}

// unlock handles an UNLOCK.
func (s *tableSim) unlock(p *simTask, l *simLease, done func()) {
	defer done()
	left := s.table.CountDown(&l.Lease)
	if left > 0 {
		s.record(l)
		return
	}
	l.believed = false
	s.endHold(p, l, LastUnlock)
}

// simResume is a RESUME of a client.
type simResume struct {
	l        *simLease
	to       *simConn
	answered func(error)
}

// begin begins a RESUME, which begins again after a restart until it is answered.
func (s *tableSim) begin(r *simResume) {
	s.resumes = append(s.resumes, r)
	s.spawn(false, func(p *simTask) { s.runResume(p, r) })
}

func (s *tableSim) runResume(p *simTask, r *simResume) {
	err := ErrEnded
	if s.table.ByID(r.l.grant.id) == &r.l.Lease {
		_, err = s.resume(p, r.l, r.to)
	}
	s.resumes = slices.DeleteFunc(s.resumes, func(other *simResume) bool { return other == r })
	r.to.pending--
	r.answered(err)
}

// resume moves a lease to another connection.
func (s *tableSim) resume(p *simTask, l *simLease, to *simConn) (*simLease, error) {
	p.pause()
	s.trace("lease %d is resumed by connection %d", l.number, to.number)
	l.view = nil
	if l.OfProcess {
		if l.Holder().isClosed {
			return nil, ErrEnded
		}
		if err := s.table.MoveReport(&l.Lease, &to.Client); err != nil {
			return nil, err
		}
	} else {
		replaced, moved, err := s.table.Resume(&l.Lease, &to.Client)
		for _, old := range replaced {
			s.apply(p, simOf(old), Dropped)
		}
		if err != nil {
			return nil, err
		}
		if moved {
			if s.updateOwner(l); l.grant.err == nil && !l.ttl && (l.grant.until == 0 || s.now < l.grant.until) {
				l.grant.until, l.grant.token.until = 0, 0
			}
		}
	}
	if r := s.records[l.number]; r != nil {
		r.conn, r.Conn = to, uint64(to.number)
	}
	p.pause()
	if l.grant.err != nil {
		return nil, l.grant.err
	}
	if l.grant.until != 0 && s.now >= l.grant.until { // redlock is about to report that
		return nil, errSimLost
	}
	if !l.OfProcess && l.Reporter() != &to.Client {
		return nil, ErrEnded
	}
	l.believed, l.view, l.cutUntil = !to.ending && l.Life.State == Held, to, 0
	return l, nil
}

// hangUp closes a connection; cut: the daemon does it.
func (s *tableSim) hangUp(c *simConn, cut bool) {
	if c.ended { // with a restart
		return
	}
	s.trace("connection %d ends, cut: %v", c.number, cut)
	c.ending, c.cut = true, cut
	if cut { // a later daemon must not assume that its client has ended it
		s.opened[uint64(c.number)].Stored = false
	}
	s.spawn(false, func(p *simTask) { s.disconnect(p, c, cut) })
}

// disconnect ends a connection when its requests have ended.
func (s *tableSim) disconnect(p *simTask, c *simConn, cut bool) {
	p.until(func() bool { return c.pending == 0 })
	if !cut {
		delete(s.opened, uint64(c.number))
	}
	p.pause()
	for _, l := range inOrder(s.table.Disconnect(&c.Client)) {
		if cut {
			l.cutUntil = s.now + simTTL
		} else if !l.ttl {
			l.believed = false
		}
		s.clientEnded(p, l, &c.Client, ClientEnd{Outlives: l.ttl, Cut: cut})
	}
	delete(s.opened, uint64(c.number))
	c.ended = true
}

// endProcess ends a process.
func (s *tableSim) endProcess(p *simTask, c *simConn) {
	c.ending = true
	for _, l := range inOrder(s.table.EndProcess(&c.Client)) {
		l.believed = false
		s.clientEnded(p, l, &c.Client, ClientEnd{Process: true})
	}
	c.ended = true
}

func (s *tableSim) clientEnded(p *simTask, l *simLease, client *Client, end ClientEnd) {
	end.Lost, end.Lingers = l.grant.err != nil, l.lingers
	s.endWithout(p, l, client, end.Ending())
	if end.Process && end.Lost {
		s.apply(p, l, ProcessEnded)
	}
}
