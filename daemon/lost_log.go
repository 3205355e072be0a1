package daemon

import (
	"sync"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// lossLog bounds what the log says of leases that are over: a user can have as many as he
// likes end in a moment (max=, hold=ttl), and what others lose is to be found.
type lossLog struct {
	mu    sync.Mutex // guards users
	users map[int]*losses
}

// losses are a user's since he lost one, for lossPause.
type losses struct {
	user   string
	n      int
	latest string // lock that is not in the log
}

// So many leases of a user are named in the log in so long; of more it says how many.
const (
	lossLines = 200
	lossPause = 10 * time.Second
)

// logLost warns, but for a lease that ends as whoever took it asked.
func (d *daemon) logLost(h *holding, lease *redlock.Lease) {
	if !d.isNamed(h) {
		return
	}
	if h.hold == ipc.HoldTTL && lease.Reason() == redlock.LostExpired {
		d.log.Info("lease over: its ttl ended, as hold=ttl asks", "lock", h.waiter.Label(), "user", h.User, "pid", h.PID)
		return
	}
	d.log.Warn("lease lost", "lock", h.waiter.Label(), "reason", lease.Reason(), "user", h.User, "pid", h.PID, "cause", orNone(lease.Cause()))
}

func orNone(err error) any {
	if err == nil {
		return "none"
	}
	return err
}

// isNamed counts a lease that is over, and tells whether the log is to name it.
func (d *daemon) isNamed(h *holding) bool {
	l := &d.lossLog
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.users[h.UID]
	if of == nil {
		if l.users == nil {
			l.users = map[int]*losses{}
		}
		of = &losses{user: h.User}
		l.users[h.UID] = of
		time.AfterFunc(lossPause, func() { d.logUnnamed(h.UID) })
	}
	if of.n++; of.n > lossLines {
		of.latest = h.waiter.Label()
	}
	return of.n <= lossLines
}

// logUnnamed says how many were not named, if any were not.
func (d *daemon) logUnnamed(uid int) {
	l := &d.lossLog
	l.mu.Lock()
	of := l.users[uid]
	delete(l.users, uid)
	l.mu.Unlock()
	if more := of.n - lossLines; more > 0 {
		d.log.Warn("more leases lost or over than are named here", "user", of.user, "leases", more, "latest", of.latest)
	}
}
