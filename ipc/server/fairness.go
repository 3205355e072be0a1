package server

import (
	"runtime"
	"time"
)

// maxSteps are the lines that are begun before it is looked how long that took.
const maxBegun = 16

// dividedRead is what is read at once while there are several users, so that little
// has to be noted of a connection that is held back.
const sharedReadSize = 2 << 10

// pace is how a connection keeps to its user's share. It belongs to the goroutine
// that reads.
type fairness struct {
	share     *userShare
	slot      *slot         // nil: the user's own allowance is taken
	chargedAt time.Duration // what was taken before is booked
	extraCost time.Duration // was taken elsewhere
	begun     int           // lines since it was looked last
	ended     bool
}

// due tells that it is time to look what was taken.
func (p *fairness) isDue() bool { return p.begun >= maxBegun }

// look is to come before anything else is begun.
func (p *fairness) setDue() { p.begun = maxBegun }

// book books what was taken, and tells whether the user may take more at once.
func (p *fairness) charge() (more bool) {
	now := p.share.scheduler.now()
	cost := now - p.chargedAt + p.extraCost
	p.chargedAt, p.extraCost, p.begun = now, 0, 0
	if p.slot == nil {
		return !p.share.charge(now, cost)
	}
	p.slot.used += cost
	if p.slot.used < quantum {
		return true
	}
	p.returnSlot(now)
	return !p.share.charge(now, 0)
}

// pause is for when nothing is to be done: what waiting costs is booked as it ends.
func (p *fairness) pause() {
	p.charge()
	if p.slot != nil {
		p.returnSlot(p.chargedAt)
	}
}

// goOn follows pause.
func (p *fairness) resume() {
	p.chargedAt = p.share.scheduler.now()
	if over := p.share.charge(p.chargedAt, receiveCost); over {
		p.setDue()
	}
}

func (p *fairness) returnSlot(now time.Duration) {
	p.share.scheduler.returnSlot(p.slot, now)
	p.slot = nil
}

// readSize is how much is to be read at once.
func (p *fairness) readSize() int {
	if p.share.scheduler.isShared(p.chargedAt) {
		return sharedReadSize
	}
	return readSize
}

// end gives everything back, once.
func (p *fairness) end() {
	if p.ended {
		return
	}
	p.ended = true
	p.pause()
	p.share.scheduler.leave(p.share)
}

// keepPace books what was taken, and has the connection wait if that was too much
// beside others. It is woken by whatever wakes it else: then it is to look again.
func (c *Conn) waitForShare() {
	if c.fairness.charge() {
		return
	}
	c.wantsNews.Store(false) // no answer need wake it
	c.recordUnread()
	c.uncork()
	c.fairness.charge()
	c.fairness.slot = c.fairness.share.waitForSlot(c.wakeup)
	c.fairness.chargedAt = c.fairness.share.scheduler.now()
	if c.fairness.slot == nil {
		c.fairness.setDue()
	}
}

// isPaced is false of a connection that has to come to an end.
func (c *Conn) mayBeDelayed() bool { return !c.stopping.Load() && !c.freezing.Load() }

// waitToOpen is for the beginning of a connection.
func (c *Conn) waitBeforeOpen() {
	c.fairness.extraCost = openCost
	for c.fairness.setDue(); c.fairness.isDue() && c.mayBeDelayed(); {
		c.waitForShare()
	}
}

// divided is what the server's users share.
func (s *Server) scheduler() *scheduler {
	s.schedulerOnce.Do(func() { s.sharedScheduler = newScheduler(runtime.GOMAXPROCS(0), s.HeldBack) })
	return s.sharedScheduler
}

// pace is for a new connection; end must follow.
func (s *scheduler) newFairness(peer Peer) fairness {
	return fairness{share: s.join(peer), chargedAt: s.now()}
}
