package server

import (
	"time"
)

// maxBegun is how many lines may begin before their cost is charged.
const maxBegun = 16

// sharedReadSize is the size of a read while several users are active. It is small, so that little
// has to be recorded if the connection is delayed.
const sharedReadSize = 2 << 10

// fairness keeps one connection within its user's share. It belongs to the goroutine that reads.
type fairness struct {
	share      *userShare
	slot       *slot         // nil: the user is within its allowance
	chargedAt  time.Duration // costs up to this time are charged
	extraCost  time.Duration // cost on other goroutines, not charged yet
	begunLines int           // lines since the last charge
	ended      bool
}

// isDue reports whether it is time to charge costs.
func (p *fairness) isDue() bool { return p.begunLines >= maxBegun }

// setDue makes isDue true, so that costs are charged before another line begins.
func (p *fairness) setDue() { p.begunLines = maxBegun }

// charge charges the costs since the previous call. It reports whether the user may go on at once.
func (p *fairness) charge() (more bool) {
	now := p.share.scheduler.now()
	cost := now - p.chargedAt + p.extraCost
	p.chargedAt, p.extraCost, p.begunLines = now, 0, 0
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

// pause is called before a wait. resume charges the cost of the wait.
func (p *fairness) pause() {
	p.charge()
	if p.slot != nil {
		p.returnSlot(p.chargedAt)
	}
}

// resume is called after a wait that pause began.
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

// readSize returns the size of the next read.
func (p *fairness) readSize() int {
	if p.share.scheduler.isShared(p.chargedAt) {
		return sharedReadSize
	}
	return readSize
}

// end returns the slot and leaves the scheduler. Only the first call does anything.
func (p *fairness) end() {
	if p.ended {
		return
	}
	p.ended = true
	p.pause()
	p.share.scheduler.leave(p.share)
}

// newFairness returns the fairness of a new connection. The caller must call end.
func (s *scheduler) newFairness(peer Peer) fairness {
	return fairness{share: s.join(peer), chargedAt: s.now()}
}
