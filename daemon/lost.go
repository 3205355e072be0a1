package daemon

import (
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// rememberLost is how long a lost lease is told of on a connection that stays
// open.
const rememberLost = time.Hour

// lost is what a lease does when it is lost: the client hears of it before the
// deadline, and before anything that could block. The place in the queue is
// kept until then: the client may still be stopping.
func (d *daemon) lost(h *holding, lease *redlock.Lease) {
	d.journal.Lost(h.number, lease.Reason())
	if h.lostNow(d.clock()) {
		d.tellLost(h)
	}
	if left := lease.Validity(); left > 0 && lease.Reason() != redlock.LostForced {
		time.AfterFunc(left, func() { d.end(h) })
	} else {
		d.end(h)
	}
	d.recorder.Lost(lease.Reason())
	d.logLost(h, lease)
}

// tellLost sends LOST, and remembers it for as long as the client may ask.
func (d *daemon) tellLost(h *holding) {
	s, lease := h.attached(), h.lease
	if s != nil {
		s.sayLost(h.names(), lease.ID(), lease.Reason(), lostText[lease.Reason()])
	}
	d.journal.LossReported(h.number)
	switch {
	case s == nil && h.process == nil:
		d.unregisterLost(h)
	default:
		d.remember(h)
	}
}

func (s *session) sayLost(names []string, lease string, reason redlock.LostReason, text string) {
	s.conn.Send(new(ipc.Response).Notice(ipc.EventLost).
		Strs("lock", names...).Str("lease", lease).Str("reason", string(reason)).Say(text))
}

// remember keeps a lost lease for whoever asks, and forgets another where that is
// one too many.
func (d *daemon) remember(h *holding) {
	if !h.remember() {
		return // its connection has ended meanwhile
	}
	if oldest := h.desk().remember(h, d.limits.RememberLost(h.UID)); oldest != nil {
		d.forget(oldest)
	}
}

// tooOld: a lost lease is told of for an hour at most.
func (d *daemon) tooOld(h *holding) bool {
	h.mu.Lock()
	lostAt := h.lostAt
	h.mu.Unlock()
	return lostAt != 0 && d.clock()-lostAt > rememberLost
}

var lostText = map[redlock.LostReason]string{
	redlock.LostForced:  "somebody took it away with FORCE: others may hold it already, stop at once",
	redlock.LostQuorum:  "it could not be extended on a quorum of nodes, or this host was stopped for too long: stop what it protects",
	redlock.LostBeat:    "no BEAT came for as long as beat= says: stop what it protects",
	redlock.LostMax:     "its longest holding time (max) is over: stop what it protects",
	redlock.LostExpired: "its ttl is over: stop what it protects",
}
