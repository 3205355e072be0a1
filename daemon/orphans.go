package daemon

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redlockd/redlockd/ipc"
)

// orphans are the leases that a restart left without their connections. Who has them
// may not know it, where the connection broke before the OK was read: he repeats the
// LOCK, by its id=, on another connection.
type orphans struct {
	left atomic.Int64 // how many there are: mostly none, which every LOCK looks at

	mu   sync.Mutex // guards byID
	byID map[orphan]*holding
}

// orphan is what a LOCK is known by that is repeated: the same user says the same, and
// may have said the same id= of other names.
type orphan struct {
	uid              int
	owner, id, names string
}

// orphanOf has a line for each name: there may be commas in them.
func orphanOf(h *holding, id string) orphan {
	return orphan{h.UID, h.Owner, id, strings.Join(h.names(), "\n")}
}

// orphansOf are all that count on h.
func orphansOf(h *holding) (all []orphan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range append([]string{h.ID}, h.further()...) {
		if id != "" {
			all = append(all, orphanOf(h, id))
		}
	}
	return all
}

// add is for a restart. (A lease with hold=ttl outlives its connection, and may have been
// left on purpose: another LOCK of the same user is not taken for its repeat.)
func (o *orphans) add(h *holding) {
	if h.hold != ipc.HoldConn {
		return
	}
	known := orphansOf(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = map[orphan]*holding{}
	}
	for _, by := range known {
		o.byID[by] = h
	}
	o.left.Store(int64(len(o.byID)))
}

// take is the lease that a LOCK has got before the restart; nil: none, or it is over, or
// a connection's again, or that of another client who says the same id=. Several that
// count on it may be repeated at once.
func (o *orphans) take(a *ask) *holding {
	if a.ID == "" || a.hold != ipc.HoldConn || o.left.Load() == 0 {
		return nil
	}
	by := orphanOf(a.holding, a.ID)
	h := o.get(by)
	if h == nil || h.PID != a.PID && mayLive(h.PID) {
		return nil
	}
	if o.remove(by) != h { // another repeat was faster
		return nil
	}
	if h.attached() != nil || h.lease.Err() != nil || h.waiter.Kind != a.waiter.Kind {
		return nil
	}
	return h
}

// mayLive tells whether there is a process with that number, as far as can be seen: it may
// be at work under what it has got.
func mayLive(pid int) bool {
	if pid == 0 {
		return false
	}
	fd, err := openPID(pid)
	if err != nil {
		return errors.Is(err, errShort)
	}
	defer closeFD(fd)
	return isAlive(fd)
}

func (o *orphans) get(by orphan) *holding {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[by]
}

// forget is for a lease that is a connection's again.
func (o *orphans) forget(h *holding) {
	if o.left.Load() == 0 {
		return
	}
	for _, by := range orphansOf(h) {
		o.remove(by)
	}
}

func (o *orphans) remove(by orphan) *holding {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.byID[by]
	delete(o.byID, by)
	o.left.Store(int64(len(o.byID)))
	return h
}
