package server

import (
	"runtime"
	"time"
)

// maxSteps are the lines that are begun before it is looked how long that took.
const maxSteps = 16

// dividedRead is what is read at once while there are several users, so that little
// has to be noted of a connection that is held back.
const dividedRead = 2 << 10

// pace is how a connection keeps to its user's share. It belongs to the goroutine
// that reads.
type pace struct {
	share *share
	place *place        // nil: the user's own allowance is taken
	since time.Duration // what was taken before is booked
	extra time.Duration // was taken elsewhere
	steps int           // lines since it was looked last
	ended bool
}

// due tells that it is time to look what was taken.
func (p *pace) due() bool { return p.steps >= maxSteps }

// look is to come before anything else is begun.
func (p *pace) look() { p.steps = maxSteps }

// book books what was taken, and tells whether the user may take more at once.
func (p *pace) book() (more bool) {
	now := p.share.all.now()
	cost := now - p.since + p.extra
	p.since, p.extra, p.steps = now, 0, 0
	if p.place == nil {
		return !p.share.take(now, cost)
	}
	p.place.used += cost
	if p.place.used < quantum {
		return true
	}
	p.giveBack(now)
	return !p.share.take(now, 0)
}

// pause is for when nothing is to be done: what waiting costs is booked as it ends.
func (p *pace) pause() {
	p.book()
	if p.place != nil {
		p.giveBack(p.since)
	}
}

// goOn follows pause.
func (p *pace) goOn() {
	p.since = p.share.all.now()
	if over := p.share.take(p.since, receiveCost); over {
		p.look()
	}
}

func (p *pace) giveBack(now time.Duration) {
	p.share.all.giveBack(p.place, now)
	p.place = nil
}

// readSize is how much is to be read at once.
func (p *pace) readSize() int {
	if p.share.all.divided(p.since) {
		return dividedRead
	}
	return readSize
}

// end gives everything back, once.
func (p *pace) end() {
	if p.ended {
		return
	}
	p.ended = true
	p.pause()
	p.share.all.leave(p.share)
}

// keepPace books what was taken, and has the connection wait if that was too much
// beside others. It is woken by whatever wakes it else: then it is to look again.
func (c *Conn) keepPace() {
	if c.pace.book() {
		return
	}
	c.watchful.Store(false) // no answer need wake it
	c.noteRest()
	c.uncork()
	c.pace.book()
	c.pace.place = c.pace.share.wait(c.wakeup)
	c.pace.since = c.pace.share.all.now()
	if c.pace.place == nil {
		c.pace.look()
	}
}

// isPaced is false of a connection that has to come to an end.
func (c *Conn) isPaced() bool { return !c.stopping.Load() && !c.freezing.Load() }

// waitToOpen is for the beginning of a connection.
func (c *Conn) waitToOpen() {
	c.pace.extra = openCost
	for c.pace.look(); c.pace.due() && c.isPaced(); {
		c.keepPace()
	}
}

// divided is what the server's users share.
func (s *Server) divided() *shares {
	s.share.Do(func() { s.shares = newShares(runtime.GOMAXPROCS(0), s.HeldBack) })
	return s.shares
}

// pace is for a new connection; end must follow.
func (s *shares) pace(peer Peer) pace {
	return pace{share: s.join(peer), since: s.now()}
}
