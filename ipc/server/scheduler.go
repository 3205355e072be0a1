package server

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// How processing is shared between users while there is more than one. Costs are
// measured, but for what is done elsewhere than on the goroutine that reads.
const (
	activityWindow = 100 * time.Millisecond // who sent nothing for so long takes no share
	allowanceParts = 4                      // a user has one such part of all processors to himself
	slotParts      = 4                      // those who want more share one such part of half of them
	burst          = 500 * time.Microsecond // that may be taken at once after a pause
	quantum        = 100 * time.Microsecond // that is taken of what is common, before it is another's turn
	maxDebt        = activityWindow         // who took much at once is not held back for longer
	receiveCost    = 5 * time.Microsecond   // of waiting for input, and of being woken
	workCost       = 40 * time.Microsecond  // of a Work: on the goroutine that runs it, and of its round trips
	openCost       = 50 * time.Microsecond  // of a connection, until it can be read from
)

// shares divides what a server's processors can do between users, be they one
// connection or a thousand. A user alone takes what he wants. While there are
// others, each has an allowance; who takes more waits for a place, of which there
// are fewer than processors, so that there is always one for those who take little.
// Places go round by user, and by connection of a user.
type scheduler struct {
	start time.Time
	procs time.Duration // how many processors there are
	slots chan *slot

	lastActive atomic.Pointer[userShare] // who was active last
	switchedAt atomic.Int64              // when that was another than before; 0: never
	heldBack   func()                    // told whenever somebody is held back; nil: nobody is told

	mu      sync.Mutex // guards what follows, and refs of each share
	users   map[userKey]*userShare
	sweptAt time.Duration // when users was looked through
}

// userKey is one user, or all who are not known.
type userKey struct {
	uid   uint32
	known bool
}

// share is what a user takes, on all of his connections.
type userShare struct {
	scheduler   *scheduler
	refs        int           // connections
	paidAt      atomic.Int64  // when what was taken is paid by his allowance
	nextForSlot chan struct{} // of capacity 1: has a place taken by the connection that is next
}

// place is a right to take a quantum of what is common.
type slot struct {
	paidAt time.Duration // when it is paid for
	used   time.Duration
}

func newScheduler(procs int, heldBack func()) *scheduler {
	s := &scheduler{
		start:    time.Now(),
		procs:    time.Duration(procs),
		slots:    make(chan *slot, max(1, procs/2)),
		heldBack: heldBack,
		users:    map[userKey]*userShare{},
	}
	for range cap(s.slots) {
		s.slots <- new(slot)
	}
	return s
}

// now is not 0.
func (s *scheduler) now() time.Duration { return time.Since(s.start) + 1 }

// join is the share of a new connection. leave must follow.
func (s *scheduler) join(peer Peer) *userShare {
	now, key := s.now(), userKey{peer.UID, peer.Known}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	u := s.users[key]
	if u == nil {
		u = &userShare{scheduler: s, nextForSlot: make(chan struct{}, 1)}
		u.paidAt.Store(math.MinInt64) // nothing
		s.users[key] = u
	}
	u.refs++
	return u
}

// leave is for a connection that is over. Its user's debts stay.
func (s *scheduler) leave(u *userShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.refs--
}

// sweep forgets users who have no connections and no debts, but for who was active
// last: when he comes back he is no other. It needs mu.
func (s *scheduler) sweep(now time.Duration) {
	if now-s.sweptAt < activityWindow {
		return
	}
	s.sweptAt = now
	last := s.lastActive.Load()
	for key, u := range s.users {
		if u.refs == 0 && u != last && u.paidAt.Load() <= int64(now) {
			delete(s.users, key)
		}
	}
}

// divided tells whether there are several users.
func (s *scheduler) isShared(now time.Duration) bool {
	switched := s.switchedAt.Load()
	return switched != 0 && int64(now)-switched < int64(activityWindow)
}

// touch notes that the user is active.
func (u *userShare) noteActive(now time.Duration) {
	s := u.scheduler
	if s.lastActive.Load() == u {
		return
	}
	if s.lastActive.Swap(u) != nil {
		s.switchedAt.Store(int64(now))
	}
}

// take books what the user took until now, and tells whether that is more than his
// allowance.
func (u *userShare) charge(now, cost time.Duration) (over bool) {
	u.noteActive(now)
	if !u.scheduler.isShared(now) {
		return false
	}
	least, price := int64(now-burst*allowanceParts/u.scheduler.procs), int64(cost*allowanceParts/u.scheduler.procs)
	for {
		owes := u.paidAt.Load()
		after := min(max(owes, least)+price, int64(now+maxDebt))
		if u.paidAt.CompareAndSwap(owes, after) {
			return after > int64(now)
		}
	}
}

// wait is for a place, or for what the user took to be paid by his allowance: then
// it is nil, as if something comes from stop before. Others of the same user wait
// until then, without a timer each.
func (u *userShare) waitForSlot(stop <-chan struct{}) *slot {
	if u.scheduler.heldBack != nil {
		u.scheduler.heldBack()
	}
	select {
	case u.nextForSlot <- struct{}{}:
		defer func() { <-u.nextForSlot }()
	case <-stop:
		return nil
	}
	paid := time.NewTimer(u.debt())
	defer paid.Stop()
	select {
	case p := <-u.scheduler.slots:
		return u.waitUntilPaid(p, stop)
	case <-paid.C:
	case <-stop:
	}
	return nil
}

// debt is how long it takes until what was taken is paid.
func (u *userShare) debt() time.Duration {
	return time.Duration(max(u.paidAt.Load(), 0)) - u.scheduler.now()
}

// await waits until the place is paid for, which nobody else can have meanwhile.
func (u *userShare) waitUntilPaid(p *slot, stop <-chan struct{}) *slot {
	left, debt := p.paidAt-u.scheduler.now(), u.debt()
	if left <= 0 {
		return p
	}
	timer := time.NewTimer(min(left, debt))
	defer timer.Stop()
	select {
	case <-timer.C:
		if left <= debt {
			return p
		}
	case <-stop:
	}
	u.scheduler.slots <- p
	return nil
}

// giveBack has the place be another's, once what was taken there is paid for. Who is
// woken later than he should be makes up for that.
func (s *scheduler) returnSlot(p *slot, now time.Duration) {
	p.paidAt = max(p.paidAt, now-burst) + p.used*slotParts
	p.used = 0
	s.slots <- p
}
