package access

import (
	"errors"
	"fmt"
	"sync"

	"github.com/redlockd/redlockd/daemon/config"
)

// Limits counts what each user has, and refuses requests above a limit. It counts a
// lease from the request on, so that no waiter is refused in the end. Its methods are
// safe for concurrent use.
type Limits struct {
	mu     sync.Mutex // guards the fields below; Connection.Unread is called inside it
	bounds config.Limits
	users  map[int]*usage // by user id; it has no users whose usage is zero
	open   int            // connections of all users
}

// ErrLimit is the error of a request that exceeds a limit of the config.
var ErrLimit = errors.New("a limit of the config is reached")

// Connection is an open connection of a user.
type Connection interface {
	Unread() int // bytes of answers that the client has not read
}

// usage is what one user has.
type usage struct {
	leases, waiters int // leases: one for each name, also of LOCKs in progress, and one for each reentrant LOCK
	admitted        int // connections that are not open yet
	queries         int // WHO, EXTEND and RESUME in progress
	lost            int // lost leases that clients can still ask about
	connections     map[Connection]struct{}
	listing         chan struct{} // capacity 1: full while a LIST is prepared
}

// NewLimits makes Limits with no usage.
func NewLimits(bounds config.Limits) *Limits {
	return &Limits{bounds: bounds, users: map[int]*usage{}}
}

// Set replaces the bounds. Leases and connections above a new bound stay.
func (l *Limits) Set(bounds config.Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds = bounds
}

// RequestRate returns requests_per_second; 0: no bound.
func (l *Limits) RequestRate() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bounds.RequestsPerSecond
}

// TooFast is the error of a request above requests_per_second.
func (l *Limits) TooFast() error {
	return overLimit("requests_per_second", l.RequestRate())
}

func overLimit(name string, bound int) error {
	return fmt.Errorf("%w: %s = %d", ErrLimit, name, bound)
}

// overLeases is the error of leases_per_user. It mentions waiters and the names of the LOCK if they
// count. Otherwise a user with few leases would not understand it.
func overLeases(bound, names, waiting int) error {
	err := overLimit("leases_per_user", bound)
	if waiting > 0 {
		err = fmt.Errorf("%w, of which %d only wait for a lock", err, waiting)
	}
	if names > 1 {
		err = fmt.Errorf("%w, and this would be %d more: each name counts", err, names)
	}
	return err
}

// isAtBound reports whether n is at the bound; 0 is no bound.
func isAtBound(n, bound int) bool { return bound != 0 && n >= bound }

// Connect counts a connection as open. AdmitConnection has counted it, unless a restart kept it. The
// result is a semaphore that allows one long answer of the user at a time.
func (l *Limits) Connect(uid int, c Connection, restored bool) (listing chan struct{}) {
	l.update(uid, func(u *usage) {
		if restored || u.admitted == 0 {
			l.open++
		} else {
			u.admitted--
		}
		u.connections[c] = struct{}{}
		listing = u.listing
	})
	return listing
}

// AddReentrant counts a LOCK with reentrant=yes of a lease that the client already holds. It is one
// more lease of the user, because the daemon remembers its id= as long as the lease. isRepeated: the
// LOCK was allowed before a restart.
func (l *Limits) AddReentrant(uid int, isRepeated bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	if !isRepeated && isAtBound(u.leases, l.bounds.LeasesPerUser) {
		return overLimit("leases_per_user", l.bounds.LeasesPerUser)
	}
	u.leases++
	return nil
}

// RemoveReentrant subtracts n LOCKs that AddReentrant counted.
func (l *Limits) RemoveReentrant(uid, n int) {
	if n != 0 {
		l.update(uid, func(u *usage) { u.leases -= n })
	}
}

// Restore counts a lease that a restart kept, with its reentrant LOCKs.
func (l *Limits) Restore(uid, leases int) {
	l.update(uid, func(u *usage) { u.leases += leases })
}

// AdmitConnection counts a new connection, unless it is above a limit. Connect or
// DismissConnection must follow.
func (l *Limits) AdmitConnection(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	if err := l.checkConnection(u); err != nil {
		return err
	}
	l.open++
	u.admitted++
	return nil
}

// DismissConnection subtracts an admitted connection that is not opened.
func (l *Limits) DismissConnection(uid int) {
	l.update(uid, func(u *usage) {
		l.open--
		u.admitted--
	})
}

// checkConnection returns why the user may not have one more connection. The caller holds mu.
func (l *Limits) checkConnection(u *usage) error {
	switch {
	case isAtBound(l.open, l.bounds.Connections):
		return overLimit("connections", l.bounds.Connections)
	case isAtBound(len(u.connections)+u.admitted, l.bounds.ConnectionsPerUser):
		return overLimit("connections_per_user", l.bounds.ConnectionsPerUser)
	}
	return nil
}

// Disconnect subtracts an open connection.
func (l *Limits) Disconnect(uid int, c Connection) {
	l.update(uid, func(u *usage) {
		l.open--
		delete(u.connections, c)
	})
}

// Connections returns how many connections are open or admitted.
func (l *Limits) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Unread returns how many bytes of answers the clients of a user have not read.
func (l *Limits) Unread(uid int) (bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	for c := range l.user(uid).connections {
		bytes += c.Unread()
	}
	return bytes
}

// BeginLock counts a LOCK as one lease for each of its names, because each costs as much as a
// lease, and as a waiter if it may wait. If it does not wait, only leases_per_user bounds it.
// isRepeated: the LOCK was allowed before a restart. EndLock must follow.
func (l *Limits) BeginLock(uid, names int, patient, isRepeated bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	switch {
	case isRepeated:
	case patient && isAtBound(u.waiters, l.bounds.WaitersPerUser): // before leases, which also count waiters
		return overLimit("waiters_per_user", l.bounds.WaitersPerUser)
	case isAtBound(u.leases+names-1, l.bounds.LeasesPerUser):
		return overLeases(l.bounds.LeasesPerUser, names, u.waiters)
	}
	u.leases += names
	if patient {
		u.waiters++
	}
	return nil
}

// EndLock ends a counted LOCK. If it was granted, its leases stay counted.
func (l *Limits) EndLock(uid, names int, patient, granted bool) {
	l.update(uid, func(u *usage) {
		if patient {
			u.waiters--
		}
		if !granted {
			u.leases -= names
		}
	})
}

// BeginQuery counts a request that asks the nodes but acquires nothing. waiters_per_user bounds
// their number. EndQuery must follow.
func (l *Limits) BeginQuery(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	if isAtBound(u.queries, l.bounds.WaitersPerUser) {
		return overLimit("waiters_per_user", l.bounds.WaitersPerUser)
	}
	u.queries++
	return nil
}

// EndQuery ends a counted query.
func (l *Limits) EndQuery(uid int) {
	l.update(uid, func(u *usage) { u.queries-- })
}

// RememberLost counts a lost lease that clients can still ask about. tooMany: the user
// has more of them than leases_per_user, so the daemon must forget one.
func (l *Limits) RememberLost(uid int) (tooMany bool) {
	l.update(uid, func(u *usage) {
		u.lost++
		tooMany = l.bounds.LeasesPerUser != 0 && u.lost > l.bounds.LeasesPerUser
	})
	return tooMany
}

// ForgetLost subtracts a lost lease that RememberLost counted.
func (l *Limits) ForgetLost(uid int) {
	l.update(uid, func(u *usage) { u.lost-- })
}

// EndLease subtracts a lease of so many names.
func (l *Limits) EndLease(uid, names int) {
	l.update(uid, func(u *usage) { u.leases -= names })
}

// update changes the usage of a user.
func (l *Limits) update(uid int, by func(*usage)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	by(l.user(uid))
}

// user returns the usage of a user. The caller holds mu.
func (l *Limits) user(uid int) *usage {
	u := l.users[uid]
	if u == nil {
		u = &usage{connections: map[Connection]struct{}{}, listing: make(chan struct{}, 1)}
		l.users[uid] = u
	}
	return u
}

// forgetIfIdle removes a user whose usage is zero. The caller holds mu.
func (l *Limits) forgetIfIdle(uid int) {
	if u := l.users[uid]; u != nil && u.isIdle() {
		delete(l.users, uid)
	}
}

func (u *usage) isIdle() bool {
	return u.leases == 0 && u.waiters == 0 && u.queries == 0 && u.lost == 0 &&
		u.admitted == 0 && len(u.connections) == 0
}

// IsEmpty reports whether no user has anything.
func (l *Limits) IsEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users) == 0
}
