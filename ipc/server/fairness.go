package server

import (
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

// pace is for a new connection; end must follow.
func (s *scheduler) newFairness(peer Peer) fairness {
	return fairness{share: s.join(peer), chargedAt: s.now()}
}
