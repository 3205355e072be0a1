package daemon

import (
	"fmt"
	"sync"
)

// limits counts what each user has, and refuses what would be too much. A
// lease is counted from the request on, so that nobody who waited is refused
// in the end.
type limits struct {
	mu          sync.Mutex // guards what follows
	bounds      LimitsConfig
	users       map[int]*usage
	connections int
}

// usage is what one user has.
type usage struct{ connections, leases, waiters int }

func newLimits(bounds LimitsConfig) *limits {
	return &limits{bounds: bounds, users: map[int]*usage{}}
}

// set replaces the bounds; what is held stays held.
func (l *limits) set(bounds LimitsConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds = bounds
}

func (l *limits) requestRate() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bounds.RequestsPerSecond
}

func (l *limits) tooFast() error {
	return overLimit("requests_per_second", l.requestRate())
}

func overLimit(name string, bound int) error {
	return fmt.Errorf("%w: %s = %d", errLimit, name, bound)
}

// reached: 0 is no bound.
func reached(n, bound int) bool { return bound != 0 && n >= bound }

// connect counts a connection in; one of before a restart whatever the bounds are now.
func (l *limits) connect(uid int, before bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tidy(uid)
	u := l.user(uid)
	switch {
	case before: // it was allowed then
	case reached(l.connections, l.bounds.Connections):
		return overLimit("connections", l.bounds.Connections)
	case reached(u.connections, l.bounds.ConnectionsPerUser):
		return overLimit("connections_per_user", l.bounds.ConnectionsPerUser)
	}
	l.connections++
	u.connections++
	return nil
}

// restored counts a lease of before a restart in.
func (l *limits) restored(uid int) {
	l.change(uid, func(u *usage) { u.leases++ })
}

func (l *limits) disconnect(uid int) {
	l.change(uid, func(u *usage) {
		l.connections--
		u.connections--
	})
}

func (l *limits) connected() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connections
}

// ask counts a LOCK in, as one that waits and as a lease to be.
func (l *limits) ask(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tidy(uid)
	u := l.user(uid)
	switch {
	case reached(u.leases, l.bounds.LeasesPerUser):
		return overLimit("leases_per_user", l.bounds.LeasesPerUser)
	case reached(u.waiters, l.bounds.WaitersPerUser):
		return overLimit("waiters_per_user", l.bounds.WaitersPerUser)
	}
	u.leases++
	u.waiters++
	return nil
}

// answered: a LOCK has come to its end, with a lease or without.
func (l *limits) answered(uid int, granted bool) {
	l.change(uid, func(u *usage) {
		u.waiters--
		if !granted {
			u.leases--
		}
	})
}

// ended: a lease is held no more.
func (l *limits) ended(uid int) {
	l.change(uid, func(u *usage) { u.leases-- })
}

func (l *limits) change(uid int, by func(*usage)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tidy(uid)
	by(l.user(uid))
}

// user needs mu.
func (l *limits) user(uid int) *usage {
	u := l.users[uid]
	if u == nil {
		u = &usage{}
		l.users[uid] = u
	}
	return u
}

// tidy forgets a user who has nothing. The caller holds mu.
func (l *limits) tidy(uid int) {
	if u := l.users[uid]; u != nil && *u == (usage{}) {
		delete(l.users, uid)
	}
}
