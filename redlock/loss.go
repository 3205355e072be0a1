package redlock

import (
	"fmt"
	"time"
)

// LostReason is one word for how a lease was lost.
type LostReason string

const (
	LostQuorum  LostReason = "quorum"  // it could not be extended on a quorum
	LostForced  LostReason = "forced"  // somebody took it away (Quorum.Force): others may hold it at once
	LostMax     LostReason = "max"     // Request.Max was reached
	LostBeat    LostReason = "beat"    // its holder gave no sign of life (Lease.Lose)
	LostExpired LostReason = "expired" // it was not to be kept, and its ttl is over
)

// LostError says how a lease was lost. It matches ErrLost.
type LostError struct {
	Name   string // the lock
	Reason LostReason
}

func (e *LostError) Error() string { return fmt.Sprintf("%s: %v (%s)", e.Name, ErrLost, e.Reason) }

func (e *LostError) Is(target error) bool { return target == ErrLost }

// Lose loses the lease, for a reason that the caller knows: it is extended no more,
// and OnLost is called as for any other loss. The lock is given back at the stated
// deadline, not before: the holder has at least the guard to stop in. It does
// nothing to a lease that is over.
func (l *Lease) Lose(reason LostReason) { l.lose(reason) }

// GiveUp stops extending and says LOST without telling anybody: the holder
// cannot be reached, but may still be at work. The lock is given back at the
// stated deadline, not before.
func (l *Lease) GiveUp() {
	if l.finish(lost, LostQuorum, l.keeper.clock()) == nil {
		l.keeper.forget(l)
	}
}

// lose says LOST. It is for the timer, and for answers that leave no doubt.
func (l *Lease) lose(reason LostReason) {
	if l.keeper.closed.Load() || l.finish(lost, reason, l.keeper.clock()) != nil {
		return
	}
	l.keeper.forget(l)
	l.keeper.q.counts.lost.Add(1)
	if l.onLost != nil {
		l.onLost(l)
	}
}

// ring is what the lease's timer does. While the lease is held: say LOST, or
// wait on where it was extended meanwhile. At the deadline of a lost one: give
// back what nodes may still hold of it.
func (l *Lease) ring() {
	now := l.keeper.clock()
	l.mu.Lock()
	state, reason, left := l.state, l.reasonOf(), l.lostAt()-now
	if state == lost {
		left = l.backAt - now
	}
	if state != released && left > 0 {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	switch {
	case left > 0:
	case state == held:
		l.lose(reason)
	case state == lost:
		l.keeper.q.abandon(&l.target, l.token, l.placed)
	}
}

// Stopped gives back at once what the nodes still hold of a lease that was lost: its
// holder has said that he has stopped, or is gone. Otherwise that is done at the stated
// deadline. It does nothing to any other lease, and does not wait for the nodes.
func (l *Lease) Stopped() {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == lost && now < l.backAt {
		l.backAt = now
		l.timer.Reset(0) // see ring
	}
}

// Left is how long the nodes may still hold something of a lease that was lost: until
// it is given back. 0 where it is not lost, or nothing is left of it.
func (l *Lease) Left() time.Duration {
	now := l.keeper.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != lost || l.reason == LostForced && l.width() == 1 {
		return 0
	}
	return max(l.backAt-now, 0)
}
