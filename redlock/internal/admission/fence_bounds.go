package admission

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// Fencing tokens are a wall clock's microseconds, or one more than the last token, so counters
// run behind the clocks. A token far ahead of the clocks comes from a node that lies or is
// broken, not from a grant. If it were written back to all nodes, it would bring their counters
// close to MaxFence and end all grants of each lock with that counter. So it is not believed, and
// other hosts' scripts refuse it (FAR in rare.lua). A token that is only slightly ahead does no
// harm: each grant adds 1, and the clocks run faster.

// MaxFence is the largest integer that a double counts exactly, less a margin that is never used
// up. A node with a larger counter fails.
const MaxFence = 1<<53 - 1<<40

// maxFenceLead is how far a fencing token may be ahead of the nodes' clocks. A node refuses a
// token that is twice as far ahead of its own clock. So it accepts each token that is believed
// here, although the clocks differ.
const maxFenceLead = 26 * 7 * 24 * time.Hour

// fenceBounds has what the nodes' clocks show. No single node can move the bound.
type fenceBounds struct {
	offsets []atomic.Int64 // by node: its TIME minus our BootTime; unread: not known yet
}

const clockUnread = math.MinInt64

func newFenceBounds(nodes int) fenceBounds {
	b := fenceBounds{offsets: make([]atomic.Int64, nodes)}
	for i := range b.offsets {
		b.offsets[i].Store(clockUnread)
	}
	return b
}

// NoteClock records a node's clock whenever it is read.
func (f *Fleet) NoteClock(node int, s ClockSample) {
	if s.Known {
		f.bounds.offsets[node].Store(int64(s.Low))
	}
}

// FenceBound returns the largest fencing token that is believed at now: maxFenceLead ahead of the
// time that has passed according to a quorum of nodes. It returns 0 if fewer clocks were read.
// (This host's wall clock does not count: it may never have been set, and then be years behind,
// or be ahead of what the nodes accept.)
func (f *Fleet) FenceBound(now time.Duration) uint64 {
	past, known := f.QuorumTime(now)
	if !known {
		return 0
	}
	return min(uint64(max(past+maxFenceLead, 0).Microseconds()), MaxFence)
}

// ReserveLimit returns the largest fencing token that may be reserved at now; 0: too few clocks
// were read. A node ignores a proposal that is more than a second ahead of its clock. Half of
// that is left for changes since the clocks were read. So the counters run no faster than the
// clocks, however many tokens are reserved.
func (f *Fleet) ReserveLimit(now time.Duration) uint64 {
	past, known := f.QuorumTime(now)
	if !known {
		return 0
	}
	return uint64(max(past+ProposalLead/2, 0).Microseconds())
}

// ProposalLead is how far a proposal may be ahead of a node's clock (AHEAD in ballot.lua).
const ProposalLead = time.Second

// QuorumTime returns the time since 1970 that has passed according to a quorum of nodes. It is
// not known if fewer clocks were read.
func (f *Fleet) QuorumTime(now time.Duration) (sinceEpoch time.Duration, known bool) {
	low := quorum.AtLeast(f.lists[0], func(node int) int64 { return f.bounds.offsets[node].Load() })
	if low == clockUnread {
		return 0, false
	}
	return now + time.Duration(low), true
}

// CheckFence returns an error if a counter cannot have reached this value by grants.
func (f *Fleet) CheckFence(counter string, fence, bound uint64) error {
	if fence <= bound {
		return nil
	}
	return &fenceBeyondBound{counter: counter, fence: fence, bound: bound}
}

// fenceBeyondBound is the error of a fencing token, or a counter, that is not believed.
type fenceBeyondBound struct {
	counter      string
	fence, bound uint64
}

func (e *fenceBeyondBound) Error() string {
	return fmt.Sprintf("its fencing counter %s is at %d, more than %.0f days ahead of most nodes' clocks, which grants cannot cause: its vote does not count; "+
		"set the nodes' clocks if they are wrong; otherwise that node lies or somebody wrote to it: HDEL %s epoch there, and after max_ttl it has the counters of the others, or replace it",
		e.counter, e.fence, maxFenceLead.Hours()/24+float64(e.fence-e.bound)/float64((24*time.Hour).Microseconds()), NodeKey)
}
