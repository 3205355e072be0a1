package locktable

import (
	"fmt"
	"slices"
	"time"
)

// client is a client with one connection after the other, and perhaps a process that holds leases.
func (s *tableSim) client(p *simTask, number int) {
	c, process := s.connect(), (*simConn)(nil)
	if s.chance(30) {
		process = s.connect()
		process.IsProcess = true
	}
	var mine []*simLease
	var asks []*simAsk
	for range 4 + s.random.IntN(8) {
		p.pause()
		c = s.reconnect(c, asks, mine)
		mine = slices.DeleteFunc(mine, func(l *simLease) bool { return !l.believed })
		switch n := s.random.IntN(100); {
		case n < 40:
			a := s.newAsk(c, process, number)
			asks = append(asks, a)
			s.send(a)
			if s.chance(20) { // again, with the same id=
				again := *a
				again.reentrant = s.chance(50)
				asks = append(asks, &again)
				s.send(&again)
			}
		case n < 60 && len(mine) > 0:
			s.await(p, func(done func()) {
				l := mine[s.random.IntN(len(mine))]
				s.spawn(false, func(p *simTask) { s.unlock(p, l, done) })
			})
		case n < 70 && len(mine) > 0: // RESUME on another connection; the previous one ends before or after
			l, next, previous := mine[s.random.IntN(len(mine))], s.connect(), c
			next.pending++
			first, cut := s.chance(50), s.chance(50)
			if first {
				s.hangUp(previous, cut)
			}
			s.await(p, func(done func()) {
				s.begin(&simResume{l, next, func(err error) {
					if err == errSimLost { // its client knows that now
						l.believed = false
					}
					done()
				}})
			})
			if !first {
				s.hangUp(previous, cut)
			}
			c = next
		case n < 76 && len(mine) > 0:
			s.lose(mine[s.random.IntN(len(mine))], s.chance(50))
		case n < 80:
			for _, a := range asks {
				a.cancelled = a.cancelled || s.chance(50)
			}
		case n < 90:
			wake := s.now + time.Duration(s.random.IntN(30))*time.Millisecond
			s.after(wake-s.now, nil)
			p.until(func() bool { return s.now >= wake })
		default:
			wake := s.now + 20*time.Millisecond
			s.after(wake-s.now, nil)
			p.until(func() bool {
				return s.now >= wake || !slices.ContainsFunc(asks, func(a *simAsk) bool { return !a.answered })
			})
		}
		asks = slices.DeleteFunc(asks, func(a *simAsk) bool {
			if a.answered && a.err == nil {
				mine = append(mine, a.lease)
			}
			return a.answered
		})
	}
	if s.chance(50) {
		p.until(s.isIdle)
		s.checkTold(c)
	}
	c = s.reconnect(c, asks, mine)
	cut := s.chance(20)
	s.hangUp(c, cut)
	if process != nil {
		process.ending = true
		s.spawn(false, func(p *simTask) { s.endProcess(p, process) })
	}
}

// reconnect returns c, or a new connection if a restart broke c. The client asks again what was not
// answered, with the same id=, and resumes its leases, or gives up.
func (s *tableSim) reconnect(c *simConn, asks []*simAsk, mine []*simLease) *simConn {
	if !c.broken {
		return c
	}
	next := s.connect()
	for _, a := range asks {
		if a.answered || a.conn != c {
			continue
		}
		if a.conn, a.isAllowed = next, false; s.chance(80) {
			s.send(a)
			continue
		}
		next.pending++
		a.answer(nil, errSimCancelled)
	}
	for _, l := range mine {
		switch {
		case l.OfProcess || !l.believed || l.ttl:
		case s.chance(70):
			next.pending++
			s.begin(&simResume{l, next, func(err error) {
				if err != nil {
					l.believed = false
				}
			}})
		default:
			l.believed = false
		}
	}
	return next
}

// await waits for what begin starts.
func (s *tableSim) await(p *simTask, begin func(done func())) {
	isDone, started := false, s.started
	begin(func() { isDone = true })
	p.until(func() bool { return isDone || s.started != started })
}

func (s *tableSim) send(a *simAsk) {
	a.conn.pending++
	s.asks = append(s.asks, a)
	s.after(a.deadline-s.now, nil)
	s.spawn(false, func(p *simTask) { s.lock(p, a) })
}

func (s *tableSim) newAsk(c, process *simConn, client int) *simAsk {
	a := &simAsk{s: s, conn: c, uid: client % 2, patient: s.chance(80), deadline: s.now + time.Duration(10+s.random.IntN(300))*time.Millisecond, lingers: s.chance(20), reentrant: s.chance(30)}
	all := []string{"a", "b", "c"}
	first := s.random.IntN(len(all))
	a.names = all[first : first+1]
	switch s.random.IntN(6) {
	case 0:
		a.names = all[:2]
	case 1:
		a.kind = Kind{Shared: true}
	case 2:
		a.kind = Kind{Slots: 2}
	}
	if s.chance(70) {
		a.id = fmt.Sprint("client ", client, " id ", s.random.IntN(2))
	}
	switch n := s.random.IntN(100); {
	case n < 20 && process != nil:
		a.process = process
	case n < 35:
		a.ttl = true
	case n < 50:
		a.min = time.Duration(s.random.IntN(40)) * time.Millisecond
	}
	return a
}
