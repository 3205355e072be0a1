package daemon

import (
	"fmt"
	"time"

	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// leastBeat is the shortest beat= that there is: what a timer and a busy host are
// good for.
const leastBeat = redlock.MinTTL

// pulse is what is known of the life of a client whose lock has beat=. A lease
// without BEAT for so long is lost with the deadline that it was extended to last,
// which is the guard away at least: time to stop in before others have the lock.
// But for within, it is guarded by the holding's mu.
type pulse struct {
	within time.Duration // what beat= says; does not change
	timer  *time.Timer   // nil: nothing to watch yet, or any more
	last   time.Duration // BootTime of the last sign of life
	missed bool          // for good
}

// newPulse is nil where there is no beat=.
func newPulse(within time.Duration) *pulse {
	if within == 0 {
		return nil
	}
	return &pulse{within: within}
}

// beat is what beat= says; 0: it needs none.
func (h *holding) beat() time.Duration {
	if h.pulse == nil {
		return 0
	}
	return h.pulse.within
}

// startBeat counts the grant as the first sign of life. It needs mu.
func (h *holding) startBeat(d *daemon) {
	if h.pulse != nil {
		h.pulse.last = d.clock()
		h.pulse.timer = time.AfterFunc(h.pulse.within, func() { d.listen(h) })
	}
}

// stopBeat: the lease is over.
func (h *holding) stopBeat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pulse != nil && h.pulse.timer != nil {
		h.pulse.timer.Stop()
		h.pulse.timer = nil
	}
}

// listen is what the timer does: the last BEAT may have come since it was set.
func (d *daemon) listen(h *holding) {
	if h.missedBeat(d.clock()) {
		h.lease.Lose(redlock.LostBeat)
	}
}

// left is for how long no BEAT is needed. (The sum of last and within may be more than
// there is.) It needs mu.
func (p *pulse) left(now time.Duration) time.Duration { return p.within - (now - p.last) }

// missedBeat settles whether too long ago was the last BEAT. If not, the timer is
// set for when it will be.
func (h *holding) missedBeat(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.pulse.left(now)
	h.pulse.missed = h.pulse.missed || left <= 0
	if !h.pulse.missed && h.pulse.timer != nil {
		h.pulse.timer.Reset(left)
	}
	return h.pulse.missed
}

// beaten notes a BEAT, unless it comes too late: whether the timer has run already
// (a busy host, one that was suspended) is no matter.
func (h *holding) beaten(now time.Duration) (late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pulse.missed = h.pulse.missed || h.pulse.left(now) <= 0
	h.pulse.last = now
	return h.pulse.missed
}

// beat answers from memory.
func (s *session) beat(call *server.Call) server.Work {
	h, err := s.find(call)
	if err == nil {
		err = s.d.takeBeat(h)
	}
	if err != nil {
		return s.refuse(call, err)
	}
	return reply(call, ok(call).Strs("lock", h.names()...))
}

func (d *daemon) takeBeat(h *holding) error {
	if err := h.lease.Err(); err != nil {
		return err
	}
	if h.pulse == nil {
		return fmt.Errorf("%s: %w: BEAT for a lock that was taken without beat=", h.waiter.Label(), errOption)
	}
	if h.beaten(d.clock()) {
		h.lease.Lose(redlock.LostBeat)
	}
	return h.lease.Err()
}
