package server

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// How the processors are shared while several users are active. Costs are measured, except for
// costs on other goroutines than the reading one: those are fixed.
const (
	activityWindow = 100 * time.Millisecond // a user that sent nothing for this time takes no share
	allowanceParts = 4                      // each user has 1/allowanceParts of all processors
	slotParts      = 4                      // users that want more share 1/slotParts of half of them
	burst          = 500 * time.Microsecond // a user may take this at once after a pause
	quantum        = 100 * time.Microsecond // use of a slot before another connection's turn
	maxDebt        = activityWindow         // a user is not delayed for longer than this
	receiveCost    = 5 * time.Microsecond   // waiting for input, and being woken
	workCost       = 40 * time.Microsecond  // a Work: its goroutine, and its round trips
	openCost       = 50 * time.Microsecond  // a connection, until it can be read
)

// scheduler shares the processors between users, whether a user has one connection or a thousand. A
// lone user is not limited. While other users are active, each user has an allowance. A user that
// takes more waits for a slot. There are fewer slots than processors, so one processor is always
// left for users that take little. Slots go round by user, and by connection of a user.
type scheduler struct {
	start time.Time
	procs time.Duration // the number of processors
	slots chan *slot

	lastActive atomic.Pointer[userShare] // the user that was active last
	switchedAt atomic.Int64              // when another user became lastActive; 0: never
	heldBack   func()                    // called whenever a connection is delayed; may be nil

	mu      sync.Mutex // guards the fields below, and refs of each share; no other mutex is taken inside it
	users   map[userKey]*userShare
	sweptAt time.Duration // when sweep last ran
}

// userKey is one user, or all unknown users.
type userKey struct {
	uid   uint32
	known bool
}

// userShare is what one user takes, over all its connections.
type userShare struct {
	scheduler   *scheduler
	refs        int           // connections
	paidAt      atomic.Int64  // when the allowance has paid for everything taken
	nextForSlot chan struct{} // has room for one: the connection that gets the next slot
}

// slot is the right to take a quantum beyond the allowance.
type slot struct {
	paidAt time.Duration // when its use is paid for
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

// now returns the time since start, and never 0.
func (s *scheduler) now() time.Duration { return time.Since(s.start) + 1 }

// join returns the share of a new connection. The caller must call leave.
func (s *scheduler) join(peer Peer) *userShare {
	now, key := s.now(), userKey{peer.UID, peer.Known}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	u := s.users[key]
	if u == nil {
		u = &userShare{scheduler: s, nextForSlot: make(chan struct{}, 1)}
		u.paidAt.Store(math.MinInt64) // nothing to pay
		s.users[key] = u
	}
	u.refs++
	return u
}

// leave ends a connection's use of its share. The user keeps its debt.
func (s *scheduler) leave(u *userShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.refs--
}

// sweepLocked forgets users without connections and debts, except the user that was active last: its
// return is not a switch to another user. The caller holds mu.
func (s *scheduler) sweepLocked(now time.Duration) {
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

// isShared reports whether several users are active.
func (s *scheduler) isShared(now time.Duration) bool {
	switched := s.switchedAt.Load()
	return switched != 0 && int64(now)-switched < int64(activityWindow)
}

// noteActive records that the user is active.
func (u *userShare) noteActive(now time.Duration) {
	s := u.scheduler
	if s.lastActive.Load() == u {
		return
	}
	if s.lastActive.Swap(u) != nil {
		s.switchedAt.Store(int64(now))
	}
}

// charge adds a cost to the user's account. It reports whether the user exceeds its allowance.
func (u *userShare) charge(now, cost time.Duration) (exceeds bool) {
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

// waitForSlot waits for a slot. It returns nil if the allowance pays the debt first, or if stop
// delivers something. Other connections of the same user wait in nextForSlot, without a timer each.
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

// debt returns the time until everything is paid.
func (u *userShare) debt() time.Duration {
	return time.Duration(max(u.paidAt.Load(), 0)) - u.scheduler.now()
}

// waitUntilPaid waits until the slot is paid for. No other connection can have it meanwhile.
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

// returnSlot lets another connection have the slot, once its use is paid for. The burst makes up
// for waking late.
func (s *scheduler) returnSlot(p *slot, now time.Duration) {
	p.paidAt = max(p.paidAt, now-burst) + p.used*slotParts
	p.used = 0
	s.slots <- p
}
