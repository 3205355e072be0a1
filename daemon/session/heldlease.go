package session

import (
	"cmp"
	"sync"
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// heldLease is a lease in the daemon: the lease itself, and whose it is. There are tens
// of thousands: what few of them have is behind a pointer (tally, pulse), and what is
// small stands together.
type heldLease struct {
	waitqueue.Requester
	number  uint64       // in the journal: that of its LOCK; 0 where there is none
	process *heldProcess // whose life holds it, with hold=pid; or nil
	index   *leaseIndex  // where it goes by its names, until it is resumed elsewhere: see desk
	linger  time.Duration
	waiter  waitqueue.Waiter // its names and kind are those of the lock
	lease   *redlock.Lease
	ended   sync.Once // it is held no more: see daemon.end
	freed   sync.Once // the process is not needed for it any more

	mu             sync.Mutex  // guards what follows, but hold
	session        *session    // that hears of its loss; nil once its connection ended
	resumedIndex   *leaseIndex // where it goes by its names since it was resumed
	lostAt         time.Duration
	reentrancy     *reentrancy // nil: no LOCK but the first counts, nor has any
	heartbeat      *heartbeat  // nil: it needs no BEAT
	reported       bool        // the client knows that it has the lease
	lossUnreported bool        // it was lost before, and is to be told of
	releasing      bool        // it is being given back, which has to be noted to its end
	memory         memory
	stage          stage
	hold           ipc.Hold // does not change
	disconnects    uint16   // how often its client was gone, so that it lingered
}

// memory is whether a lost lease can be asked of.
type memory uint8

const (
	notLost    memory = iota // or nobody was told yet
	remembered               // counted as such: see limits
	forgotten                // for good
)

// remember is false if the lease is forgotten already.
func (h *heldLease) remember() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.memory != notLost {
		return false
	}
	h.memory = remembered
	return true
}

// forget tells whether it was remembered.
func (h *heldLease) forget() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.memory
	h.memory = forgotten
	return before == remembered
}

// names returns the names of the lock, in the order of the request.
func (h *heldLease) names() []string { return h.waiter.Names }

// markReported notes that the client was answered; it tells whether the lease was
// lost before, once.
func (h *heldLease) markReported() (early bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	early, h.reported, h.lossUnreported = h.lossUnreported, true, false
	return early
}

// markLost notes the loss; it tells whether the client is to be told now: not
// before it knows that it had the lease.
func (h *heldLease) markLost(now time.Duration) (tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lostAt = now
	h.lossUnreported = !h.reported
	return h.reported
}

// attached is the session that the holding belongs to, or nil.
func (h *heldLease) attached() *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// detach takes the holding from a session, whose connection has ended. It is false if
// the holding has been resumed by another one.
func (h *heldLease) detach(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != s {
		return false
	}
	h.session = nil
	return true
}

// countDisconnect counts how often its client was gone. One that came back in between
// (RESUME), and is gone again, has all of linger= once more.
func (h *heldLease) countDisconnect() (nth uint16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disconnects++
	return h.disconnects
}

// disconnectedAgain tells whether its client was gone again since.
func (h *heldLease) disconnectedAgain(nth uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.disconnects != nth
}

// currentIndex is where the holding goes by its names.
func (h *heldLease) currentIndex() *leaseIndex {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.resumedIndex, h.index)
}

// claimRelease begins the release of a lease without a client. It is false if the lease has a
// client again (RESUME), or is being released already.
func (h *heldLease) claimRelease() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.releasing || h.session != nil && h.process == nil {
		return false
	}
	h.releasing = true
	return true
}

// Since is the BootTime of the grant.
func (h *heldLease) Since() time.Duration { return h.lease.Since() }

// Validity is how long the lease is still valid.
func (h *heldLease) Validity() time.Duration { return h.lease.Validity() }

// EndsByItself reports that nobody can release the lease, or extends it.
func (h *heldLease) EndsByItself() bool { return h.hold == ipc.HoldTTL || h.lease.Err() != nil }

// leaseRegistry finds leases by their ids, from any connection.
type leaseRegistry struct {
	mu   sync.Mutex // guards byID
	byID map[string]*heldLease
}

func newLeaseRegistry() *leaseRegistry { return &leaseRegistry{byID: map[string]*heldLease{}} }

func (r *leaseRegistry) add(h *heldLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[h.lease.ID()] = h
}

func (r *leaseRegistry) remove(h *heldLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, h.lease.ID())
}

func (r *leaseRegistry) get(id string) *heldLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

func (r *leaseRegistry) all() []*heldLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*heldLease, 0, len(r.byID))
	for _, h := range r.byID {
		all = append(all, h)
	}
	return all
}

// Held counts those that are not lost.
func (r *leaseRegistry) Held() (n int) {
	for _, h := range r.all() {
		if h.lease.Err() == nil {
			n++
		}
	}
	return n
}

// record is what the journal says of a lease that was granted. The LOCKs that count on it
// besides are noted when they are answered.
func (h *heldLease) record() *state.Lease {
	r := &state.Lease{
		Number: h.number, Phase: state.PhaseHeld, Record: h.lease.Record(),
		Holder: state.Holder{
			UID: h.UID, PID: h.PID, User: h.User, Owner: h.Owner, Note: h.Note, ID: h.ID, Since: h.Asked,
			Hold: h.hold, Linger: h.linger, Beat: h.beatInterval(),
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
func (d *Host) noteGranted(h *heldLease) {
	if h.number == 0 {
		return
	}
	r := h.record()
	d.Journal.Granted(r)
	if h.lease.Deadline() < r.Record.Deadline {
		d.Journal.Deadline(h.number, h.lease) // it moved back meanwhile: what is noted must never be later
	}
}

// hasBegun reports whether the client was granted the lease. A lease that was lost
// before its client heard of it was held by nobody.
func (h *heldLease) hasBegun() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stage != acquiring
}

// countField is for who does not say whether it counts: it is told where more than one
// UNLOCK is needed.
func countField(r *ipc.Response, h *heldLease) *ipc.Response {
	if n := h.count(); n > 1 {
		r.Int("count", int64(n))
	}
	return r
}

// leaseFields is what LOCK and RESUME answer.
func leaseFields(call *server.Call, h *heldLease) *ipc.Response {
	return slotField(validityFields(call, h), h.lease.Slot())
}

// validityFields: ttl is the validity that is left, and deadline the same instant on
// CLOCK_BOOTTIME.
func validityFields(call *server.Call, h *heldLease) *ipc.Response {
	deadline := h.lease.Deadline()
	return ok(call).
		Strs("lock", h.names()...).
		Str("lease", h.lease.ID()).
		Int("fence", int64(h.lease.Fence())).
		Ms("ttl", h.lease.Validity()).
		Ms("deadline", deadline)
}

// grantFields is what LOCK answers.
func grantFields(call *server.Call, h *heldLease) *ipc.Response {
	r := leaseFields(call, h)
	if call.Reentrant {
		r.Int("count", int64(h.count()))
	}
	return r
}

// heartbeat is what is known of the life of a client whose lock has beat=. A lease
// without BEAT for so long is lost with the deadline that it was extended to last,
// which is the guard away at least: time to stop in before others have the lock.
// But for within, it is guarded by the holding's mu.
type heartbeat struct {
	interval time.Duration // what beat= says; does not change
	timer    *time.Timer   // nil: nothing to watch yet, or any more
	lastBeat time.Duration // BootTime of the last sign of life
	missed   bool          // for good
}

// newHeartbeat is nil where there is no beat=.
func newHeartbeat(within time.Duration) *heartbeat {
	if within == 0 {
		return nil
	}
	return &heartbeat{interval: within}
}

// beatInterval is what beat= says; 0: it needs none.
func (h *heldLease) beatInterval() time.Duration {
	if h.heartbeat == nil {
		return 0
	}
	return h.heartbeat.interval
}

// startHeartbeat counts the grant as the first sign of life. It needs mu.
func (h *heldLease) startHeartbeat(d *Host) {
	if h.heartbeat != nil {
		h.heartbeat.lastBeat = d.Clock()
		h.heartbeat.timer = time.AfterFunc(h.heartbeat.interval, func() { d.checkHeartbeat(h) })
	}
}

// stopHeartbeat: the lease is over.
func (h *heldLease) stopHeartbeat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heartbeat != nil && h.heartbeat.timer != nil {
		h.heartbeat.timer.Stop()
		h.heartbeat.timer = nil
	}
}

// checkHeartbeat is what the timer does: the last BEAT may have come since it was set.
func (d *Host) checkHeartbeat(h *heldLease) {
	if h.isHeartbeatMissed(d.Clock()) {
		h.lease.Lose(redlock.LostBeat)
	}
}

// left is for how long no BEAT is needed. (The sum of last and within may be more than
// there is.) It needs mu.
func (p *heartbeat) left(now time.Duration) time.Duration { return p.interval - (now - p.lastBeat) }

// isHeartbeatMissed settles whether too long ago was the last BEAT. If not, the timer is
// set for when it will be.
func (h *heldLease) isHeartbeatMissed(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.heartbeat.left(now)
	h.heartbeat.missed = h.heartbeat.missed || left <= 0
	if !h.heartbeat.missed && h.heartbeat.timer != nil {
		h.heartbeat.timer.Reset(left)
	}
	return h.heartbeat.missed
}

// noteBeat notes a BEAT, unless it comes too late: whether the timer has run already
// (a busy host, one that was suspended) is no matter.
func (h *heldLease) noteBeat(now time.Duration) (late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heartbeat.missed = h.heartbeat.missed || h.heartbeat.left(now) <= 0
	h.heartbeat.lastBeat = now
	return h.heartbeat.missed
}

// ownerNow is who DEADLOCK takes it for.
func (h *heldLease) ownerNow() waitqueue.Owner {
	if h.process != nil {
		return waitqueue.Owner{Client: h.process, Name: h.Owner}
	}
	if s := h.attached(); s != nil {
		return waitqueue.Owner{Client: s, Name: h.Owner}
	}
	return waitqueue.Owner{Client: h, Name: h.Owner}
}

// attach makes a session report the loss of the lease, and k its index, instead of the
// previous ones, which it returns. It is false if the lease is being released.
func (h *heldLease) attach(s *session, k *leaseIndex) (before *session, from *leaseIndex, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, from = h.session, cmp.Or(h.resumedIndex, h.index)
	if h.releasing {
		return before, from, false
	}
	h.session = s
	if k != nil {
		h.resumedIndex = k // who counts on it comes along
	}
	return before, from, true
}
