package attempts

import (
	"context"
	"sync"
	"time"
)

// Limiter bounds the attempts that are sent to the nodes at the same time. The others wait here,
// where they cost the nodes nothing. If thousands were sent at once, they would take longer than
// node_timeout, fail, be released and retried, and keep the nodes from extending leases.
//
// The limit follows from how attempts end, as in TCP (additive increase, multiplicative
// decrease). It is halved when an attempt met no quorum of nodes that answer in time, and grows
// again while others do.
//
// The attempts of one user are admitted in the order in which they came, and the users take
// turns. So a user who wants thousands of locks delays no other user.
type Limiter struct {
	timeout time.Duration // node_timeout

	mu       sync.Mutex                 // guards what follows; no other mutex is taken inside it
	limit    int                        // of attempts in progress; 0: no attempt was made yet
	underWay int                        // attempts
	voted    int                        // attempts that met a quorum since limit last changed
	votedAt  time.Time                  // when the last one did
	shrunkAt time.Duration              // when limit was last reduced
	waiting  map[int][]*waitingAttempt  // by user; no list is empty
	users    []int                      // users with waiting attempts, in the order of their turns
	resting  map[*restingPlace]struct{} // places of attempts that failed quickly; nil: closed
}

const (
	// This many concurrent attempts take local nodes some ten milliseconds, and are more than
	// enough to keep distant nodes busy.
	maxAttempts  = 256
	minAttempts  = 32
	attemptsStep = 8 // added when as many attempts as the limit have met a quorum
	// restShare: an attempt that met no quorum keeps its place for at least
	// node_timeout/restShare. So a client without a quorum gets its error quickly, but ten
	// thousand clients do not all get it at once and retry.
	restShare = 4
)

// waitingAttempt is an attempt that waits for a place.
type waitingAttempt struct {
	admitted    chan struct{} // closed when it has a place
	isWithdrawn bool          // it stopped waiting
}

// NewLimiter returns a Limiter for nodes that must answer within nodeTimeout.
func NewLimiter(nodeTimeout time.Duration) *Limiter {
	return &Limiter{timeout: nodeTimeout, resting: map[*restingPlace]struct{}{}}
}

// Enter waits for a place until ctx is done, stop is closed or until fires (nil: no bound). It
// returns true if the attempt got one. Leave or LeaveWithoutQuorum returns the place.
func (l *Limiter) Enter(ctx context.Context, user int, stop <-chan struct{}, until <-chan time.Time) bool {
	w := l.takeOrQueue(user)
	if w == nil {
		return true
	}
	select {
	case <-w.admitted:
		return true
	case <-ctx.Done():
	case <-stop:
	case <-until:
	}
	l.withdraw(w)
	return false
}

// EnterFirst is Enter for a first attempt. It waits for wait (negative: no bound), and at least
// as long as other attempts meet a quorum: until none did for node_timeout.
func (l *Limiter) EnterFirst(ctx context.Context, user int, stop <-chan struct{}, wait time.Duration) bool {
	w := l.takeOrQueue(user)
	if w == nil {
		return true
	}
	if wait < 0 {
		wait = forever
	}
	arrived := time.Now()
	timer := time.NewTimer(max(wait, l.timeout))
	defer timer.Stop()
	for {
		select {
		case <-w.admitted:
			return true
		case <-timer.C:
			if left := l.untilStalled(arrived); left > 0 {
				timer.Reset(left)
				continue
			}
			return l.takeOrWithdraw(w)
		case <-ctx.Done():
		case <-stop:
		}
		l.withdraw(w)
		return false
	}
}

const forever = 1<<63 - 1

// untilStalled returns the time until no attempt has met a quorum for node_timeout, counted from
// arrived at the earliest.
func (l *Limiter) untilStalled(arrived time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.votedAt
	if last.Before(arrived) {
		last = arrived
	}
	return time.Until(last.Add(l.timeout))
}

// takeOrQueue returns nil if the attempt got a place at once.
func (l *Limiter) takeOrQueue(user int) *waitingAttempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == 0 {
		l.limit = maxAttempts
	}
	if l.underWay < l.limit {
		l.underWay++
		return nil
	}
	if l.waiting == nil {
		l.waiting = map[int][]*waitingAttempt{}
	}
	if len(l.waiting[user]) == 0 {
		l.users = append(l.users, user)
	}
	w := &waitingAttempt{admitted: make(chan struct{})}
	l.waiting[user] = append(l.waiting[user], w)
	return w
}

// withdraw ends the wait of an attempt. If it was admitted meanwhile, another one is admitted
// instead.
func (l *Limiter) withdraw(w *waitingAttempt) {
	if l.takeOrWithdraw(w) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underWay--
		l.admitLocked()
	}
}

// takeOrWithdraw ends the wait of an attempt. It reports whether it was admitted meanwhile.
func (l *Limiter) takeOrWithdraw(w *waitingAttempt) (admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.isWithdrawn = true
	return isClosed(w.admitted)
}

// Leave returns the place of an attempt that met a quorum.
func (l *Limiter) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	l.votedAt = time.Now()
	if l.voted++; l.voted >= l.limit {
		l.limit, l.voted = min(l.limit+attemptsStep, maxAttempts), 0
	}
	l.admitLocked()
}

// LeaveWithoutQuorum returns the place of an attempt that began at start and met no
// quorum.
func (l *Limiter) LeaveWithoutQuorum(start, now time.Duration) {
	wait := start + l.timeout/restShare - now
	if wait <= 0 {
		l.leftWithoutQuorum(now)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting == nil {
		return
	}
	place := &restingPlace{}
	l.resting[place] = struct{}{}
	place.timer = time.AfterFunc(wait, func() { // Close stops it
		if l.endRest(place) {
			l.leftWithoutQuorum(now + wait)
		}
	})
}

// restingPlace is the place of an attempt that has ended, until its timer fires.
type restingPlace struct{ timer *time.Timer }

// endRest returns true if the place rested until now, false if the limiter is closed.
func (l *Limiter) endRest(place *restingPlace) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, rested := l.resting[place]
	delete(l.resting, place)
	return rested
}

// Close stops the timers of resting places. Nothing runs after it.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for place := range l.resting {
		place.timer.Stop()
	}
	l.resting = nil
}

func (l *Limiter) leftWithoutQuorum(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	// Once for all attempts that began at about the same time.
	if now-l.shrunkAt >= l.timeout {
		l.limit, l.voted, l.shrunkAt = max(l.limit/2, minAttempts), 0, now
	}
	l.admitLocked()
}

// admitLocked gives free places to waiting attempts. The caller holds mu.
func (l *Limiter) admitLocked() {
	for len(l.users) > 0 && l.underWay < l.limit {
		if w := l.nextLocked(); !w.isWithdrawn {
			close(w.admitted)
			l.underWay++
		}
	}
}

// nextLocked removes the first attempt of the user whose turn it is. The caller holds mu.
func (l *Limiter) nextLocked() *waitingAttempt {
	user := l.users[0]
	w, rest := l.waiting[user][0], l.waiting[user][1:]
	l.users = l.users[1:]
	if l.waiting[user] = rest; len(rest) > 0 {
		l.users = append(l.users, user)
	} else {
		delete(l.waiting, user)
	}
	return w
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
