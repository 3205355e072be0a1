package daemon

import (
	"cmp"
	"sync"
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// holding is a lease in the daemon: the lease itself, and whose it is. There are tens
// of thousands: what few of them have is behind a pointer (tally, pulse), and what is
// small stands together.
type holding struct {
	waitqueue.Requester
	number  uint64   // in the journal: that of its LOCK; 0 where there is none
	process *process // whose life holds it, with hold=pid; or nil
	first   *desk    // where it goes by its names, until it is resumed elsewhere: see desk
	linger  time.Duration
	waiter  waitqueue.Waiter // its names and kind are those of the lock
	lease   *redlock.Lease
	ended   sync.Once // it is held no more: see daemon.end
	freed   sync.Once // the process is not needed for it any more

	mu      sync.Mutex // guards what follows, but hold
	session *session   // that hears of its loss; nil once its connection ended
	moved   *desk      // where it goes by its names since it was resumed
	lostAt  time.Duration
	tally   *tally // nil: no LOCK but the first counts, nor has any
	pulse   *pulse // nil: it needs no BEAT
	told    bool   // the client knows that it has the lease
	early   bool   // it was lost before, and is to be told of
	giving  bool   // it is being given back, which has to be noted to its end
	memory  memory
	stage   stage
	hold    ipc.Hold // does not change
	lingers uint16   // how often its client was gone, so that it lingered
}

// memory is whether a lost lease can be asked of.
type memory uint8

const (
	notLost    memory = iota // or nobody was told yet
	remembered               // counted as such: see limits
	forgotten                // for good
)

// remember is false if the lease is forgotten already.
func (h *holding) remember() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.memory != notLost {
		return false
	}
	h.memory = remembered
	return true
}

// forget tells whether it was remembered.
func (h *holding) forget() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.memory
	h.memory = forgotten
	return before == remembered
}

// names are those of the lock, in the order in which it was asked for.
func (h *holding) names() []string { return h.waiter.Names }

// granted notes that the client was answered; it tells whether the lease was
// lost before, once.
func (h *holding) granted() (early bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	early, h.told, h.early = h.early, true, false
	return early
}

// lostNow notes the loss; it tells whether the client is to be told now: not
// before it knows that it had the lease.
func (h *holding) lostNow(now time.Duration) (tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lostAt = now
	h.early = !h.told
	return h.told
}

// attached is the session that the holding belongs to, or nil.
func (h *holding) attached() *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// detach takes the holding from a session, whose connection has ended. It is false if
// the holding has been resumed by another one.
func (h *holding) detach(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != s {
		return false
	}
	h.session = nil
	return true
}

// beginLinger counts how often its client was gone. One that came back in between
// (RESUME), and is gone again, has all of linger= once more.
func (h *holding) beginLinger() (nth uint16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lingers++
	return h.lingers
}

// lingersAgain tells whether its client was gone again since.
func (h *holding) lingersAgain(nth uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lingers != nth
}

// desk is where the holding goes by its names.
func (h *holding) desk() *desk {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.moved, h.first)
}

// claim says that the lease is about to be given back, because nobody is there who
// holds it; it is false if somebody is, since it was resumed, or if it is being
// given back already.
func (h *holding) claim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.giving || h.session != nil && h.process == nil {
		return false
	}
	h.giving = true
	return true
}

// Since is the BootTime of the grant.
func (h *holding) Since() time.Duration { return h.lease.Since() }

// Validity is how long the lease is still valid.
func (h *holding) Validity() time.Duration { return h.lease.Validity() }

// EndsByItself reports that nobody can release the lease, or extends it.
func (h *holding) EndsByItself() bool { return h.hold == ipc.HoldTTL || h.lease.Err() != nil }

// registry finds leases by their ids, from any connection.
type registry struct {
	mu   sync.Mutex // guards byID
	byID map[string]*holding
}

func newRegistry() *registry { return &registry{byID: map[string]*holding{}} }

func (r *registry) add(h *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[h.lease.ID()] = h
}

func (r *registry) remove(h *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, h.lease.ID())
}

func (r *registry) get(id string) *holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

func (r *registry) all() []*holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*holding, 0, len(r.byID))
	for _, h := range r.byID {
		all = append(all, h)
	}
	return all
}

// held counts those that are not lost.
func (r *registry) held() (n int) {
	for _, h := range r.all() {
		if h.lease.Err() == nil {
			n++
		}
	}
	return n
}

// record is what the journal says of a lease that was granted. The LOCKs that count on it
// besides are noted when they are answered.
func (h *holding) record() *state.Lease {
	r := &state.Lease{
		Number: h.number, Phase: state.PhaseHeld, Record: h.lease.Record(),
		Holder: state.Holder{
			UID: h.UID, PID: h.PID, User: h.User, Owner: h.Owner, Note: h.Note, ID: h.ID, Since: h.Asked,
			Hold: h.hold, Linger: h.linger, Beat: h.beat(),
		},
	}
	if h.process != nil {
		r.Holder.ProcessStarted = h.process.started
	}
	if s := h.attached(); s != nil {
		r.Conn = s.number
	}
	return r
}

// noteGranted notes a lease that was granted, before its LOCK is answered.
func (d *daemon) noteGranted(h *holding) {
	if h.number == 0 {
		return
	}
	r := h.record()
	d.journal.Granted(r)
	if h.lease.Deadline() < r.Record.Deadline {
		d.journal.Deadline(h.number, h.lease) // it moved back meanwhile: what is noted must never be later
	}
}

// hasBegun reports whether the client was granted the lease. A lease that was lost
// before its client heard of it was held by nobody.
func (h *holding) hasBegun() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stage != asked
}
