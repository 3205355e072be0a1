package access

import (
	"sync"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/locktable"
)

// Limits counts the connections and queries of each user, and refuses those above a limit.
// Package locktable counts leases and LOCKs. The methods of Limits are safe for concurrent use.
type Limits struct {
	mu     sync.Mutex // guards the fields below; Connection.Unread is called inside it
	bounds config.Limits
	users  map[int]*usage // by user id; it has no users whose usage is zero
	open   int            // connections of all users
}

// Connection is an open connection of a user.
type Connection interface {
	Unread() int // bytes of answers that the client has not read
}

// usage is what one user has.
type usage struct {
	admitted    int // connections that are not open yet
	queries     int // WHO, EXTEND and RESUME in progress
	connections map[Connection]struct{}
	listing     chan struct{} // capacity 1: full while a LIST is prepared
}

// NewLimits makes Limits with no usage.
func NewLimits(bounds config.Limits) *Limits {
	return &Limits{bounds: bounds, users: map[int]*usage{}}
}

// Set replaces the bounds. Connections above a new bound stay.
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
	return locktable.OverLimit("requests_per_second", l.RequestRate())
}

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

// AdmitConnection counts a new connection, unless it is above a limit. Connect or
// DismissConnection must follow.
func (l *Limits) AdmitConnection(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdleLocked(uid)
	u := l.userLocked(uid)
	if err := l.checkConnectionLocked(u); err != nil {
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

// checkConnectionLocked returns why the user may not have one more connection. The caller holds mu.
func (l *Limits) checkConnectionLocked(u *usage) error {
	switch {
	case locktable.IsAtBound(l.open, l.bounds.Connections):
		return locktable.OverLimit("connections", l.bounds.Connections)
	case locktable.IsAtBound(len(u.connections)+u.admitted, l.bounds.ConnectionsPerUser):
		return locktable.OverLimit("connections_per_user", l.bounds.ConnectionsPerUser)
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
	defer l.forgetIfIdleLocked(uid)
	for c := range l.userLocked(uid).connections {
		bytes += c.Unread()
	}
	return bytes
}

// BeginQuery counts a request that asks the nodes but acquires nothing. waiters_per_user bounds
// their number. EndQuery must follow.
func (l *Limits) BeginQuery(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdleLocked(uid)
	u := l.userLocked(uid)
	if locktable.IsAtBound(u.queries, l.bounds.WaitersPerUser) {
		return locktable.OverLimit("waiters_per_user", l.bounds.WaitersPerUser)
	}
	u.queries++
	return nil
}

// EndQuery ends a counted query.
func (l *Limits) EndQuery(uid int) {
	l.update(uid, func(u *usage) { u.queries-- })
}

// update changes the usage of a user.
func (l *Limits) update(uid int, by func(*usage)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdleLocked(uid)
	by(l.userLocked(uid))
}

// userLocked returns the usage of a user. The caller holds mu.
func (l *Limits) userLocked(uid int) *usage {
	u := l.users[uid]
	if u == nil {
		u = &usage{connections: map[Connection]struct{}{}, listing: make(chan struct{}, 1)}
		l.users[uid] = u
	}
	return u
}

// forgetIfIdleLocked removes a user whose usage is zero. The caller holds mu.
func (l *Limits) forgetIfIdleLocked(uid int) {
	if u := l.users[uid]; u != nil && u.queries == 0 && u.admitted == 0 && len(u.connections) == 0 {
		delete(l.users, uid)
	}
}

// IsEmpty reports whether no user has anything.
func (l *Limits) IsEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users) == 0
}
