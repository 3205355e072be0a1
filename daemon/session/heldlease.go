package session

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// heldLease is a lease in the daemon, with the client that holds it. There are tens of thousands of
// them. To save memory, rarely used fields are behind a pointer (delays, heartbeat), and small fields
// stand together. The Host's mu guards the Lease, except its Waiter.
type heldLease struct {
	locktable.Lease
	*recording
	delays    *endDelays     // nil: it is released as soon as its client is gone
	heartbeat *heartbeat     // nil: it needs no BEAT
	lease     *redlock.Lease // nil before the grant
	request   *lockRequest   // its LOCK while that is under way; nil after the grant; guarded by the Host's mu

	hold       ipc.Hold     // does not change
	holderGone bool         // the process of its connection had ended when this daemon started, and nobody has resumed it; guarded by the Host's mu
	lostAt     atomic.Int64 // BootTime of its loss; 0: it was not lost
}

// recording is what the state file needs of a lease besides.
type recording struct {
	number uint64 // the number of its LOCK in the journal; 0: not recorded; does not change

	// write is held from a change of the lease until that is recorded, so that no other record has the
	// change without its answer, and none that lacks the change is written later. The Host's mu is taken
	// inside it.
	write sync.Mutex

	// The Host's mu guards what follows.
	isGranted  bool            // the grant was recorded
	conn       uint64          // the last connection that had it, or reported its loss; 0: none
	releasedBy uint64          // the UNLOCK that released it; 0: none
	exchanged  *redlock.Record // with the token that the nodes get, if an exchange has begun
}

// leaseOf returns the lease of a locktable.Lease, or nil.
func leaseOf(l *locktable.Lease) *heldLease {
	if l == nil {
		return nil
	}
	return l.Backing().(*heldLease)
}

// Request and Undelivered are for locktable.Queue: see lockRequest.
func (h *heldLease) Request() redlock.Request { return h.request.Request() }

// Undelivered removes from the journal an attempt that a hand-over recorded after this request was
// answered. Otherwise the next daemon would consider the attempt under way.
func (h *heldLease) Undelivered() { h.request.session.host.Journal.Forgotten(h.number, 0) }

// Grant returns what the nodes granted.
func (h *heldLease) Grant() locktable.Grant { return h.lease }

// process returns the process that holds the lease (hold=pid), or nil.
func (h *heldLease) process() *heldProcess {
	if !h.OfProcess {
		return nil // Holder may change
	}
	return processOf(h.Holder())
}

// becomeSharedLocked makes the lease shared in this daemon, unless several LOCKs count on it.
func (h *heldLease) becomeSharedLocked() error {
	if n := h.Count(); n > 1 {
		return badOption("mode=shared: the lease counts %d exclusive LOCKs (reentrant=yes): UNLOCK until one is left", n)
	}
	h.IsShared = true
	return nil
}

// mode returns how a lease is held.
func (d *Host) mode(h *heldLease) locktable.Kind { return locked(d, h.Mode) }

// reporter returns the session that reports the loss of a lease, or nil.
func (d *Host) reporter(h *heldLease) *session { return sessionOf(locked(d, h.Reporter)) }

// EndsByItself reports that the lease ends without its client, which cannot extend it.
func (h *heldLease) EndsByItself() bool {
	return h.hold == ipc.HoldTTL || h.lease.Err() != nil
}

// endDelays says how long a lease stays taken after nobody holds it any more.
type endDelays struct {
	linger time.Duration // linger=: from the end of its client, unless the client resumes it
	since  time.Duration // BootTime since which it has had no client, with linger=; 0: it has one; guarded by the Host's mu
	min    time.Duration // min=: from the grant on; keepUntil makes it longer; guarded by the Host's mu
}

// newEndDelays returns nil if there are no delays.
func newEndDelays(linger, minTaken time.Duration) *endDelays {
	if linger == 0 && minTaken == 0 {
		return nil
	}
	return &endDelays{linger: linger, min: minTaken}
}

// linger returns linger= of the lease.
func (h *heldLease) linger() time.Duration {
	if h.delays == nil {
		return 0
	}
	return h.delays.linger
}

// minLeft returns how long a lease stays taken at least, whatever its holder does; 0: it has no min=,
// or that has passed.
func (d *Host) minLeft(h *heldLease) time.Duration {
	return locked(d, func() time.Duration { return d.minLeftLocked(h) })
}

func (d *Host) minLeftLocked(h *heldLease) time.Duration {
	if h.delays == nil || h.delays.min == 0 {
		return 0
	}
	return max(h.delays.min-(d.Clock()-h.lease.Since()), 0)
}

// keepUntil keeps a lease, which has min=, taken at least until an instant, also after a restart.
func (d *Host) keepUntil(h *heldLease, instant time.Duration) {
	d.record(h, func() (by uint64) {
		h.delays.min = max(h.delays.min, instant-h.lease.Since())
		return 0
	})
}

// isKept reports whether nobody holds a lease, and it stays taken until min= has passed.
func (d *Host) isKept(h *heldLease) bool {
	return locked(d, func() bool { return h.Life.State == locktable.Kept })
}

// isHolderGone reports whether the process of a lease's connection had ended when this daemon started,
// and nobody has resumed the lease.
func (d *Host) isHolderGone(h *heldLease) bool { return locked(d, func() bool { return h.holderGone }) }

// record changes a lease, and records it before any other change of it: change is called under mu, and
// returns the request that the record answers; 0: none. Until its grant is recorded, a lease is only
// changed, because that record has the change.
func (d *Host) record(h *heldLease, change func() (by uint64)) {
	h.write.Lock()
	defer h.write.Unlock()
	d.mu.Lock()
	by := change()
	if !h.recording.isGranted {
		d.mu.Unlock()
		return
	}
	r := h.recordLocked()
	d.mu.Unlock()
	d.Journal.Lease(&r, by)
}

// recordEvent applies an event to a lease, records it, and then does what is due.
func (d *Host) recordEvent(h *heldLease, event locktable.Event, lost *redlock.Lease) {
	var due locktable.Due
	d.record(h, func() uint64 {
		due = d.table.Apply(&h.Lease, event)
		return 0
	})
	d.perform(h, due, lost)
}

func unchanged() (by uint64) { return 0 }

// recordLocked returns the journal's record of a granted lease.
func (h *heldLease) recordLocked() state.Lease {
	r := state.Lease{
		Number: h.number, Life: h.Life, Record: h.lease.Record(), Conn: h.conn,
		Holder: state.Holder{
			UID: h.UID, PID: h.PID, User: h.User, Owner: h.Owner, Note: h.Note, ID: h.ID, Since: h.Asked,
			Hold: h.hold, Linger: h.linger(), Beat: h.beatInterval(),
		},
		ReleasedBy: h.releasedBy,
		Reentrants: h.AnsweredFurthers(),
	}
	if r.Record.Lost != "" || h.Life.State == locktable.Gone { // even if the loss was not applied yet
		r.Life.State = locktable.Lost
	}
	r.Record.Shared = r.Record.Shared || h.IsShared
	if h.exchanged != nil {
		r.Record.Token, r.Record.Former = h.exchanged.Token, h.exchanged.Former
	}
	if h.delays != nil {
		r.LingerSince, r.Min = h.delays.since, h.delays.min
	}
	if p := h.process(); p != nil {
		r.Holder.ProcessStarted = p.started
	}
	return r
}

// countField adds the number of UNLOCKs that end the lease, if it is more than one. It is for
// answers to requests without reentrant=yes.
func (d *Host) countField(r *ipc.Response, h *heldLease) *ipc.Response {
	if n := d.count(h); n > 1 {
		r.Int("count", int64(n))
	}
	return r
}

// leaseFields returns the fields of a lease. ttl is the remaining validity, deadline the same instant
// on CLOCK_BOOTTIME, and guard how long before it LOST is sent.
func leaseFields(call *server.Call, h *heldLease) *ipc.Response {
	deadline := h.lease.Deadline()
	r := call.OK().
		Strs("lock", h.Waiter.Names...).
		Str("lease", h.lease.ID()).
		Int("fence", int64(h.lease.Fence())).
		Ms("ttl", h.lease.Validity()).
		Ms("deadline", deadline).
		Ms("guard", h.lease.Guard())
	return slotField(r, h.lease.Slot())
}

// grantFields returns the answer to LOCK.
func (d *Host) grantFields(call *server.Call, h *heldLease) *ipc.Response {
	r := leaseFields(call, h)
	if call.Reentrant {
		r.Int("count", int64(d.count(h)))
	}
	return r
}

// heartbeat is the state of beat=. A lease without a BEAT for the interval is lost. Its deadline
// stays the one of its last extension, so that the client has at least the guard to stop before
// others can get the lock. The Host's mu guards all fields except interval.
type heartbeat struct {
	interval time.Duration // beat=; does not change
	timer    *timers.Timer // nil: the lease was not granted yet, or has ended
	lastBeat time.Duration // BootTime of the last BEAT, or of the grant
	missed   bool          // once true, it stays true
}

// newHeartbeat returns nil without beat=.
func newHeartbeat(interval time.Duration) *heartbeat {
	if interval == 0 {
		return nil
	}
	return &heartbeat{interval: interval}
}

// beatInterval returns beat= of the lease; 0: it needs no BEAT.
func (h *heldLease) beatInterval() time.Duration {
	if h.heartbeat == nil {
		return 0
	}
	return h.heartbeat.interval
}

// startHeartbeat starts the interval at the grant.
func (d *Host) startHeartbeat(h *heldLease) {
	if h.heartbeat == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.Life.State == locktable.Held {
		h.heartbeat.lastBeat = d.Clock()
		h.heartbeat.timer = d.timers.After(h.heartbeat.interval, func() { d.checkHeartbeat(h) })
	}
}

// checkHeartbeat runs when the timer fires. If a BEAT came since the timer was set, it sets a timer
// for the end of that BEAT's interval.
func (d *Host) checkHeartbeat(h *heldLease) {
	now := d.Clock()
	d.mu.Lock()
	missed := h.heartbeat.isMissedLocked(now)
	if !missed && h.heartbeat.timer != nil {
		h.heartbeat.timer = d.timers.After(h.heartbeat.leftLocked(now), func() { d.checkHeartbeat(h) })
	}
	d.mu.Unlock()
	if missed {
		h.lease.Lose(redlock.LostBeat)
	}
}

// stopHeartbeat stops the timer, because the lease has ended.
func (d *Host) stopHeartbeat(h *heldLease) {
	if h.heartbeat == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.heartbeat.timer != nil {
		h.heartbeat.timer.Stop()
		h.heartbeat.timer = nil
	}
}

// leftLocked returns the time within which the next BEAT must come. It does not add interval to
// lastBeat, which may overflow.
func (p *heartbeat) leftLocked(now time.Duration) time.Duration {
	return p.interval - (now - p.lastBeat)
}

// isMissedLocked reports whether a BEAT is or was too late. It does not depend on whether the timer
// has run: the host may be busy, or was suspended.
func (p *heartbeat) isMissedLocked(now time.Duration) bool {
	p.missed = p.missed || p.leftLocked(now) <= 0
	return p.missed
}

// noteBeatLocked records a BEAT, and reports whether it came too late.
func (p *heartbeat) noteBeatLocked(now time.Duration) (late bool) {
	late = p.isMissedLocked(now)
	p.lastBeat = now
	return late
}
