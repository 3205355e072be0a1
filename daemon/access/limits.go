package access

import (
	"errors"
	"fmt"
	"sync"

	"github.com/redlockd/redlockd/daemon/config"
)

// limits counts what each user has, and refuses what would be too much. A
// lease is counted from the request on, so that nobody who waited is refused
// in the end.
type Limits struct {
	mu     sync.Mutex // guards what follows
	bounds config.Limits
	users  map[int]*usage
	open   int
}

// ErrLimit is the error of a request that is over a limit of the config.
var ErrLimit = errors.New("a limit of the config is reached")

// Connection is an open connection of a user.
type Connection interface {
	Unread() int // bytes of answers that the client has not read
}

// usage is what one user has.
type usage struct {
	leases, waiters int // leases: by their names; LOCKs under way too, and what counts on them beside their first LOCKs
	admitted        int // connections that are not open yet
	queries         int // WHO, EXTEND and RESUME under way
	lost            int // leases that were lost, of which can be asked
	connections     map[Connection]struct{}
	listing         chan struct{} // of capacity 1: has a place taken while a LIST is put together
}

func NewLimits(bounds config.Limits) *Limits {
	return &Limits{bounds: bounds, users: map[int]*usage{}}
}

// set replaces the bounds; what is held stays held.
func (l *Limits) Set(bounds config.Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds = bounds
}

func (l *Limits) RequestRate() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bounds.RequestsPerSecond
}

func (l *Limits) TooFast() error {
	return overLimit("requests_per_second", l.RequestRate())
}

func overLimit(name string, bound int) error {
	return fmt.Errorf("%w: %s = %d", ErrLimit, name, bound)
}

// overLeases says so where those who wait have a part in it, or names that one LOCK is for:
// who has few leases would not understand it else.
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

// reached: 0 is no bound.
func reached(n, bound int) bool { return bound != 0 && n >= bound }

// connect makes the session of a connection known that admit has counted in. One of
// before a restart was allowed then.
// The result is a semaphore of the user's long answers, one at a time.
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

// countUp takes in a LOCK that counts up on a lease (reentrant=yes). It is one lease more
// of its user's: it is remembered by its id= for as long.
func (l *Limits) AddReentrant(uid int, before bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	if !before && reached(u.leases, l.bounds.LeasesPerUser) {
		return overLimit("leases_per_user", l.bounds.LeasesPerUser)
	}
	u.leases++
	return nil
}

// countDown counts n of them out.
func (l *Limits) RemoveReentrant(uid, n int) {
	if n != 0 {
		l.update(uid, func(u *usage) { u.leases -= n })
	}
}

// restored counts in a lease of before a restart, with what counts on it.
func (l *Limits) Restore(uid, leases int) {
	l.update(uid, func(u *usage) { u.leases += leases })
}

// admit counts a connection in, unless it would be one too many. connect follows,
// when it is its turn, or dismiss.
func (l *Limits) AdmitConnection(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	if err := l.fits(u); err != nil {
		return err
	}
	l.open++
	u.admitted++
	return nil
}

// dismiss counts one out that was admitted, and is not opened after all.
func (l *Limits) DismissConnection(uid int) {
	l.update(uid, func(u *usage) {
		l.open--
		u.admitted--
	})
}

// fits needs mu.
func (l *Limits) fits(u *usage) error {
	switch {
	case reached(l.open, l.bounds.Connections):
		return overLimit("connections", l.bounds.Connections)
	case reached(len(u.connections)+u.admitted, l.bounds.ConnectionsPerUser):
		return overLimit("connections_per_user", l.bounds.ConnectionsPerUser)
	}
	return nil
}

func (l *Limits) Disconnect(uid int, c Connection) {
	l.update(uid, func(u *usage) {
		l.open--
		delete(u.connections, c)
	})
}

func (l *Limits) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// unread is how many bytes of answers a user's clients have not read.
func (l *Limits) Unread(uid int) (bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	for c := range l.user(uid).connections {
		bytes += c.Unread()
	}
	return bytes
}

// ask counts a LOCK in as a lease to be for each of its names, which is what it costs to
// keep it, and a patient one, which may wait, as one that waits. Others are over at once,
// and however many wait, they may be asked: leases bound them. One that came before a
// restart was allowed then.
func (l *Limits) BeginLock(uid, names int, patient, before bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	switch {
	case before:
	case patient && reached(u.waiters, l.bounds.WaitersPerUser): // first: those who wait are in both counts
		return overLimit("waiters_per_user", l.bounds.WaitersPerUser)
	case reached(u.leases+names-1, l.bounds.LeasesPerUser):
		return overLeases(l.bounds.LeasesPerUser, names, u.waiters)
	}
	u.leases += names
	if patient {
		u.waiters++
	}
	return nil
}

// answered: a LOCK that was counted in has come to its end, with a lease or without.
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

// question counts in what asks the nodes and takes nothing: as many as may wait.
func (l *Limits) BeginQuery(uid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	u := l.user(uid)
	if reached(u.queries, l.bounds.WaitersPerUser) {
		return overLimit("waiters_per_user", l.bounds.WaitersPerUser)
	}
	u.queries++
	return nil
}

func (l *Limits) EndQuery(uid int) {
	l.update(uid, func(u *usage) { u.queries-- })
}

// remember counts in a lost lease of which can be asked. It tells whether there are
// as many now as the user may hold: then one is to be forgotten.
func (l *Limits) RememberLost(uid int) (tooMany bool) {
	l.update(uid, func(u *usage) {
		u.lost++
		tooMany = l.bounds.LeasesPerUser != 0 && u.lost > l.bounds.LeasesPerUser
	})
	return tooMany
}

func (l *Limits) ForgetLost(uid int) {
	l.update(uid, func(u *usage) { u.lost-- })
}

// ended: a lease is held no more.
func (l *Limits) EndLease(uid, names int) {
	l.update(uid, func(u *usage) { u.leases -= names })
}

func (l *Limits) update(uid int, by func(*usage)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.forgetIfIdle(uid)
	by(l.user(uid))
}

// user needs mu.
func (l *Limits) user(uid int) *usage {
	u := l.users[uid]
	if u == nil {
		u = &usage{connections: map[Connection]struct{}{}, listing: make(chan struct{}, 1)}
		l.users[uid] = u
	}
	return u
}

// tidy forgets a user who has nothing. The caller holds mu.
func (l *Limits) forgetIfIdle(uid int) {
	if u := l.users[uid]; u != nil && u.isIdle() {
		delete(l.users, uid)
	}
}

func (u *usage) isIdle() bool {
	return u.leases == 0 && u.waiters == 0 && u.queries == 0 && u.lost == 0 &&
		u.admitted == 0 && len(u.connections) == 0
}

// isEmpty reports whether no user has anything.
func (l *Limits) IsEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users) == 0
}
