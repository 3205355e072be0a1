package session

import (
	"sync"
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// heldLease is a lease in the daemon, with the client that holds it. There are tens of
// thousands of them: what few of them have is behind a pointer (delays, reentrancy, heartbeat), and
// small fields stand together.
type heldLease struct {
	waitqueue.Requester
	number  uint64           // in the journal: the number of its LOCK; 0: it is not recorded
	process *heldProcess     // the process that holds it (hold=pid), or nil
	delays  *endDelays       // nil: it is released as soon as its client is gone
	waiter  waitqueue.Waiter // its names and kind are the lock's
	lease   *redlock.Lease   // nil while the state is acquiring

	mu          sync.Mutex    // guards what follows, except hold; no other mutex is taken inside it, but a timer's
	session     *session      // reports its loss; nil once its connection ended
	index       *leaseIndex   // has it by its names; changes when the lease is resumed
	lostAt      time.Duration // BootTime; 0: it was not lost
	reentrancy  *reentrancy   // nil: no LOCK but the first counts
	heartbeat   *heartbeat    // nil: it needs no BEAT
	life        leaseLife
	hold        ipc.Hold // does not change
	freed       bool     // its process is not kept for it any more
	downgraded  bool     // it is shared, and was taken exclusively
	disconnects uint16   // how often its client was gone, so that linger= began
}

// on applies an event, and returns what the caller must do, after mu is unlocked.
func (h *heldLease) on(event leaseEvent) (do leaseActions) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.onLocked(event)
}

// onLocked is on for a caller that holds mu.
func (h *heldLease) onLocked(event leaseEvent) (do leaseActions) {
	h.life, do = h.life.after(event)
	return do
}

// onLost is on(wasLost), and records when that was.
func (h *heldLease) onLost(now time.Duration) (do leaseActions) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lostAt = now
	return h.onLocked(wasLost)
}

// names returns the names of the lock, in the order of the request.
func (h *heldLease) names() []string { return h.waiter.Names }

// becomeShared makes the lease a shared one here, unless several LOCKs count on it.
func (h *heldLease) becomeShared() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.reentrantIDs()); n > 0 {
		return badOption("mode=shared: %d LOCKs count on the lease as exclusive (reentrant=yes): UNLOCK until one is left", 1+n)
	}
	h.downgraded = true
	return nil
}

// mode returns how the lease is held.
func (h *heldLease) mode() waitqueue.Kind {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.modeLocked()
}

// modeLocked is mode for a caller that holds mu.
func (h *heldLease) modeLocked() waitqueue.Kind {
	if h.downgraded {
		return waitqueue.Kind{Shared: true}
	}
	return h.waiter.Kind
}

// attached returns the session that reports the loss of the lease, or nil.
func (h *heldLease) attached() *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// detach takes the lease from a session, whose connection has ended. It returns false if another
// connection has resumed the lease.
func (h *heldLease) detach(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != s {
		return false
	}
	h.session = nil
	return true
}

// countDisconnect counts how often the connection of the lease's client has ended. If the client
// resumes the lease, and ends again, all of linger= begins again.
func (h *heldLease) countDisconnect() (nth uint16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disconnects++
	return h.disconnects
}

// disconnectedAgain reports whether the client's connection has ended again since.
func (h *heldLease) disconnectedAgain(nth uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.disconnects != nth
}

// currentIndex returns the index that has the lease by its names.
func (h *heldLease) currentIndex() *leaseIndex {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.index
}

// onClientGone is on(clientIsGone), unless the lease has a client again (RESUME).
func (h *heldLease) onClientGone() (do leaseActions) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != nil && h.process == nil {
		return 0
	}
	return h.onLocked(clientIsGone)
}

// takeProcess returns the process that was kept for the lease, once; else nil.
func (h *heldLease) takeProcess() *heldProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.freed {
		return nil
	}
	h.freed = true
	return h.process
}

// Since is the BootTime of the grant.
func (h *heldLease) Since() time.Duration { return h.lease.Since() }

// Validity is how long the lease is still valid.
func (h *heldLease) Validity() time.Duration { return h.lease.Validity() }

// EndsByItself reports that nobody can release the lease, or extends it.
func (h *heldLease) EndsByItself() bool {
	return h.hold == ipc.HoldTTL || h.lease.Err() != nil || h.isUnheld()
}

// endDelays is how long a lease stays taken although nobody holds it any more.
type endDelays struct {
	linger    time.Duration // linger=: after its client is gone, unless that resumes it
	retention *retention    // retain=: for the next client of this host; nil: it is not retained

	// The lease's mu guards what follows.
	min       time.Duration // min=: from the grant on
	notBefore time.Duration // BootTime until which its client may be at work; 0: it is not
}

// newEndDelays returns nil if there are none.
func newEndDelays(linger, least time.Duration, r *retention) *endDelays {
	if linger == 0 && least == 0 && r == nil {
		return nil
	}
	return &endDelays{linger: linger, min: least, retention: r}
}

// linger returns what linger= says.
func (h *heldLease) linger() time.Duration {
	if h.delays == nil {
		return 0
	}
	return h.delays.linger
}

// minLeft returns for how long the lease stays taken at least, whatever its holder does; 0: it has
// no min=, or that has passed.
func (h *heldLease) minLeft(now time.Duration) time.Duration {
	if h.delays == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.delays.min == 0 {
		return 0
	}
	return max(h.delays.min-(now-h.lease.Since()), h.delays.notBefore-now, 0)
}

// notBefore has the lease, which has min=, stay taken until an instant at least.
func (h *heldLease) notBefore(instant time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delays.notBefore = instant
}

// isKept tells whether nobody holds the lease any more, and it stays taken until min= has passed.
func (h *heldLease) isKept() bool { return h.isIn(kept) }

// isUnheld tells whether nobody holds the lease any more, and its release has not begun.
func (h *heldLease) isUnheld() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.isUnheld()
}

// leaseRegistry finds leases by their ids, from any connection.
type leaseRegistry struct {
	mu     sync.Mutex // guards what follows
	byID   map[string]*heldLease
	passed map[string]*heldLease // those that were granted by a pass, by the id that the nodes show
}

func newLeaseRegistry() *leaseRegistry {
	return &leaseRegistry{byID: map[string]*heldLease{}, passed: map[string]*heldLease{}}
}

func (r *leaseRegistry) add(h *heldLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[h.lease.ID()] = h
	if h.lease.Passed() {
		r.passed[h.lease.TokenID()] = h
	}
}

func (r *leaseRegistry) remove(h *heldLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, h.lease.ID())
	if id := h.lease.TokenID(); h.lease.Passed() && r.passed[id] == h {
		delete(r.passed, id)
	}
}

// onNodes returns the lease of a holder that the nodes show, or nil. It is not for ids that a client
// sent: an earlier client, which passed the lock on, knows the id that the nodes show.
func (r *leaseRegistry) onNodes(holding *redlock.Holding) *heldLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.passed[holding.ID()]; h != nil {
		return h
	}
	return r.byID[holding.ID()]
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

// record returns what the journal says of a lease that was granted. Further LOCKs that count on it
// are recorded when they are answered.
func (h *heldLease) record() state.Lease {
	r := state.Lease{
		Number: h.number, Phase: state.PhaseHeld, Record: h.lease.Record(),
		Holder: state.Holder{
			UID: h.UID, PID: h.PID, User: h.User, Owner: h.Owner, Note: h.Note, ID: h.ID, Since: h.Asked,
			Hold: h.hold, Linger: h.linger(), Beat: h.beatInterval(),
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

// noteGranted records a lease that was granted, before its LOCK is answered.
func (d *Host) noteGranted(h *heldLease) {
	if h.number == 0 {
		return
	}
	r := h.record()
	if h.delays != nil && h.delays.min != 0 {
		d.Journal.Min(h.number, h.delays.min)
	}
	d.Journal.Granted(&r)
	if h.lease.Deadline() < r.Record.Deadline {
		d.Journal.Deadline(h.number, h.lease) // it moved back meanwhile: the recorded one must never be later
	}
}

// countField adds how many UNLOCKs end the lease, if more than one is needed. It is for answers to
// requests that do not say reentrant=yes.
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
// without a BEAT for so long is lost. Its deadline is the one that it was extended to last, so
// the client has at least the guard to stop in, before others can have the lock.
// Except interval, it is guarded by the lease's mu.
type heartbeat struct {
	interval time.Duration // what beat= says; does not change
	timer    *timers.Timer // nil: the lease was not granted yet, or has ended
	lastBeat time.Duration // BootTime of the last sign of life
	missed   bool          // for good
}

// newHeartbeat returns nil without beat=.
func newHeartbeat(interval time.Duration) *heartbeat {
	if interval == 0 {
		return nil
	}
	return &heartbeat{interval: interval}
}

// beatInterval returns what beat= says; 0: the lease needs no BEAT.
func (h *heldLease) beatInterval() time.Duration {
	if h.heartbeat == nil {
		return 0
	}
	return h.heartbeat.interval
}

// startHeartbeat counts the grant as the first sign of life.
func (h *heldLease) startHeartbeat(d *Host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heartbeat != nil && h.life.state == held {
		h.heartbeat.lastBeat = d.Clock()
		h.heartbeat.timer = d.timers.After(h.heartbeat.interval, func() { d.checkHeartbeat(h) })
	}
}

// checkHeartbeat runs when the timer fires. If a BEAT has come since the timer was set, it makes
// a timer for the instant at which that BEAT is too old.
func (d *Host) checkHeartbeat(h *heldLease) {
	now := d.Clock()
	if h.isHeartbeatMissed(now) {
		h.lease.Lose(redlock.LostBeat)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heartbeat.timer != nil {
		h.heartbeat.timer = d.timers.After(h.heartbeat.left(now), func() { d.checkHeartbeat(h) })
	}
}

// stopHeartbeat ends the watch: the lease has ended.
func (h *heldLease) stopHeartbeat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heartbeat != nil && h.heartbeat.timer != nil {
		h.heartbeat.timer.Stop()
		h.heartbeat.timer = nil
	}
}

// left returns the time in which the next BEAT must come. (lastBeat + interval may overflow.)
// The caller holds mu.
func (p *heartbeat) left(now time.Duration) time.Duration { return p.interval - (now - p.lastBeat) }

// isHeartbeatMissed reports whether the last BEAT is too old, or ever was.
func (h *heldLease) isHeartbeatMissed(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heartbeat.missed = h.heartbeat.missed || h.heartbeat.left(now) <= 0
	return h.heartbeat.missed
}

// noteBeat records a BEAT, and reports whether it came too late. It does not matter whether the
// timer has run by then: the host may be busy, or was suspended.
func (h *heldLease) noteBeat(now time.Duration) (late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heartbeat.missed = h.heartbeat.missed || h.heartbeat.left(now) <= 0
	h.heartbeat.lastBeat = now
	return h.heartbeat.missed
}

// ownerNow returns the present owner of the lease, for the search for deadlocks.
func (h *heldLease) ownerNow() waitqueue.Owner {
	if h.isUnheld() {
		return waitqueue.Owner{Client: h}
	}
	if h.process != nil {
		return waitqueue.Owner{Client: h.process, Name: h.Owner}
	}
	if s := h.attached(); s != nil {
		return waitqueue.Owner{Client: s, Name: h.Owner}
	}
	return waitqueue.Owner{Client: h, Name: h.Owner}
}

// attach moves the lease to the session s, which reports its loss from now on, and to the index k
// (nil: the index stays). It returns the session and the index that had the lease before. ok is
// false if the release of the lease has begun.
func (h *heldLease) attach(s *session, k *leaseIndex) (before *session, from *leaseIndex, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, from = h.session, h.index
	if !h.onLocked(resumed).has(allowResume) {
		return before, from, false
	}
	h.session = s
	if k != nil {
		h.index = k // the LOCKs that count on it come along
	}
	return before, from, true
}
