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
	lately      = 100 * time.Millisecond // who sent nothing for so long takes no share
	allowance   = 4                      // a user has one such part of all processors to himself
	common      = 4                      // those who want more share one such part of half of them
	burst       = 500 * time.Microsecond // that may be taken at once after a pause
	quantum     = 100 * time.Microsecond // that is taken of what is common, before it is another's turn
	maxDebt     = lately                 // who took much at once is not held back for longer
	receiveCost = 5 * time.Microsecond   // of waiting for input, and of being woken
	workCost    = 40 * time.Microsecond  // of a Work: on the goroutine that runs it, and of its round trips
	openCost    = 50 * time.Microsecond  // of a connection, until it can be read from
)

// shares divides what a server's processors can do between users, be they one
// connection or a thousand. A user alone takes what he wants. While there are
// others, each has an allowance; who takes more waits for a place, of which there
// are fewer than processors, so that there is always one for those who take little.
// Places go round by user, and by connection of a user.
type shares struct {
	began  time.Time
	procs  time.Duration // how many processors there are
	places chan *place

	last     atomic.Pointer[share] // who was active last
	switched atomic.Int64          // when that was another than before; 0: never
	held     func()                // told whenever somebody is held back; nil: nobody is told

	mu    sync.Mutex // guards what follows, and refs of each share
	users map[userKey]*share
	swept time.Duration // when users was looked through
}

// userKey is one user, or all who are not known.
type userKey struct {
	uid   uint32
	known bool
}

// share is what a user takes, on all of his connections.
type share struct {
	all  *shares
	refs int           // connections
	owes atomic.Int64  // when what was taken is paid by his allowance
	turn chan struct{} // of capacity 1: has a place taken by the connection that is next
}

// place is a right to take a quantum of what is common.
type place struct {
	free time.Duration // when it is paid for
	used time.Duration
}

func newShares(procs int, heldBack func()) *shares {
	s := &shares{
		began:  time.Now(),
		procs:  time.Duration(procs),
		places: make(chan *place, max(1, procs/2)),
		held:   heldBack,
		users:  map[userKey]*share{},
	}
	for range cap(s.places) {
		s.places <- new(place)
	}
	return s
}

// now is not 0.
func (s *shares) now() time.Duration { return time.Since(s.began) + 1 }

// join is the share of a new connection. leave must follow.
func (s *shares) join(peer Peer) *share {
	now, key := s.now(), userKey{peer.UID, peer.Known}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	u := s.users[key]
	if u == nil {
		u = &share{all: s, turn: make(chan struct{}, 1)}
		u.owes.Store(math.MinInt64) // nothing
		s.users[key] = u
	}
	u.refs++
	return u
}

// leave is for a connection that is over. Its user's debts stay.
func (s *shares) leave(u *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.refs--
}

// sweep forgets users who have no connections and no debts, but for who was active
// last: when he comes back he is no other. It needs mu.
func (s *shares) sweep(now time.Duration) {
	if now-s.swept < lately {
		return
	}
	s.swept = now
	last := s.last.Load()
	for key, u := range s.users {
		if u.refs == 0 && u != last && u.owes.Load() <= int64(now) {
			delete(s.users, key)
		}
	}
}

// divided tells whether there are several users.
func (s *shares) divided(now time.Duration) bool {
	switched := s.switched.Load()
	return switched != 0 && int64(now)-switched < int64(lately)
}

// touch notes that the user is active.
func (u *share) touch(now time.Duration) {
	s := u.all
	if s.last.Load() == u {
		return
	}
	if s.last.Swap(u) != nil {
		s.switched.Store(int64(now))
	}
}

// take books what the user took until now, and tells whether that is more than his
// allowance.
func (u *share) take(now, cost time.Duration) (over bool) {
	u.touch(now)
	if !u.all.divided(now) {
		return false
	}
	least, price := int64(now-burst*allowance/u.all.procs), int64(cost*allowance/u.all.procs)
	for {
		owes := u.owes.Load()
		after := min(max(owes, least)+price, int64(now+maxDebt))
		if u.owes.CompareAndSwap(owes, after) {
			return after > int64(now)
		}
	}
}

// wait is for a place, or for what the user took to be paid by his allowance: then
// it is nil, as if something comes from stop before. Others of the same user wait
// until then, without a timer each.
func (u *share) wait(stop <-chan struct{}) *place {
	if u.all.held != nil {
		u.all.held()
	}
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-stop:
		return nil
	}
	paid := time.NewTimer(u.debt())
	defer paid.Stop()
	select {
	case p := <-u.all.places:
		return u.await(p, stop)
	case <-paid.C:
	case <-stop:
	}
	return nil
}

// debt is how long it takes until what was taken is paid.
func (u *share) debt() time.Duration {
	return time.Duration(max(u.owes.Load(), 0)) - u.all.now()
}

// await waits until the place is paid for, which nobody else can have meanwhile.
func (u *share) await(p *place, stop <-chan struct{}) *place {
	left, debt := p.free-u.all.now(), u.debt()
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
	u.all.places <- p
	return nil
}

// giveBack has the place be another's, once what was taken there is paid for. Who is
// woken later than he should be makes up for that.
func (s *shares) giveBack(p *place, now time.Duration) {
	p.free = max(p.free, now-burst) + p.used*common
	p.used = 0
	s.places <- p
}
