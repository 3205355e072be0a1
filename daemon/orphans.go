package daemon

import (
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
func orphanOf(h *holding) orphan { return orphan{h.uid, h.owner, h.id, strings.Join(h.names(), "\n")} }

// add is for a restart.
func (o *orphans) add(h *holding) {
	if h.id == "" || h.hold != ipc.HoldConn {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = map[orphan]*holding{}
	}
	o.byID[orphanOf(h)] = h
	o.left.Store(int64(len(o.byID)))
}

// take is the lease that a LOCK has got before the restart; nil: none, or it is over.
func (o *orphans) take(a *ask) *holding {
	if a.id == "" || a.hold != ipc.HoldConn || o.left.Load() == 0 {
		return nil
	}
	h := o.remove(orphanOf(a.holding))
	if h == nil || h.attached() != nil || h.lease.Err() != nil || h.place.kind != a.place.kind {
		return nil
	}
	return h
}

func (o *orphans) remove(id orphan) *holding {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.byID[id]
	delete(o.byID, id)
	o.left.Store(int64(len(o.byID)))
	return h
}
