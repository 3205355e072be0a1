package redlock

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Fencing tokens are wall clocks' microseconds, or one more than the last one:
// counters run behind the clocks. A token far ahead of the clocks is no grant's, but
// a node's that lies or is broken: written back to all others it would bring their
// counters near to maxFence, and end the granting of every lock with that counter. So
// it is not believed, and others' scripts refuse it (FAR of rare.lua). One nearer does
// no harm: each grant adds 1, and the clocks go faster.

// farthest is how far ahead of the nodes' clocks a fencing token may be. A node
// refuses what is twice as far ahead of its own: so what is believed here is taken
// there, though their clocks differ.
const farthest = 26 * 7 * 24 * time.Hour

// horizon is what the nodes' clocks say: none of them alone can move it.
type horizon struct {
	offsets []atomic.Int64 // by node: its TIME less our BootTime; unread: not known yet
}

const unread = math.MinInt64

func newHorizon(nodes int) horizon {
	h := horizon{offsets: make([]atomic.Int64, nodes)}
	for i := range h.offsets {
		h.offsets[i].Store(unread)
	}
	return h
}

// note takes a node's clock, as often as it is read.
func (h *horizon) note(node int, s clockSample) {
	if s.known {
		h.offsets[node].Store(int64(s.low))
	}
}

// fence is the largest fencing token to be believed at now: farthest ahead of the
// time that so many nodes (a quorum) say is past. 0: fewer clocks were read. (Not of
// this host's wall clock: it may never have been set, and then be years behind, or ahead
// of what the nodes will take.)
func (h *horizon) fence(now time.Duration, quorum int) uint64 {
	var few [8]int64 // an allocation less
	offsets := few[:0]
	for i := range h.offsets {
		offsets = append(offsets, h.offsets[i].Load())
	}
	slices.Sort(offsets)
	past := offsets[len(offsets)-quorum]
	if past == unread {
		return 0
	}
	return min(uint64(max(now+time.Duration(past)+farthest, 0).Microseconds()), maxFence)
}

// farFence is a fencing token, or a counter, that is not to be believed.
type farFence struct {
	field        string
	fence, bound uint64
}

func (e *farFence) Error() string {
	return fmt.Sprintf("its fencing counter %s is at %d, more than %.0f days ahead of most nodes' clocks, which grants cannot have made of it: its vote does not count; "+
		"set the nodes' clocks if they are wrong; otherwise that node lies or somebody wrote to it: HDEL %s epoch there, and after max_ttl it has the counters of the others, or replace it",
		e.field, e.fence, farthest.Hours()/24+float64(e.fence-e.bound)/float64((24*time.Hour).Microseconds()), nodeKey)
}

// doubt makes errors of answers with a fencing token that is not to be believed.
func (l *lane) doubt(ops []operation, replies []Reply) {
	if letter := ops[0].letter; !letter.takes() && letter != opCounters {
		return
	}
	bound := l.fleet.horizon.fence(l.heard, l.fleet.quorum)
	for i := range replies {
		reply := &replies[i]
		switch {
		case reply.Err != nil:
		case ops[i].letter == opCounters:
			reply.Err = l.doubtCounters(reply.Array, bound)
		case ops[i].letter.takes():
			if token := tokenOf(reply); token.IsNumber() {
				reply.Err = l.doubtFence(string(ops[i].counter[:]), fenceOf(token), bound)
			}
		}
	}
}

// tokenOf is the fencing token of a hand-over that found the old one gone, too.
func tokenOf(reply *Reply) *Reply {
	if len(reply.Array) == 1 {
		return &reply.Array[0]
	}
	return reply
}

// doubtCounters: one counter that is not to be believed, and none is.
func (l *lane) doubtCounters(fields []Reply, bound uint64) error {
	for i := 0; i+1 < len(fields); i += 2 {
		value, ok := parseFence(fields[i+1].Str)
		if _, known := counterIndex(fields[i].Str); !known || !ok {
			continue
		}
		if err := l.doubtFence(fields[i].Str, value, bound); err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) doubtFence(field string, fence, bound uint64) error {
	if l.rules.believes(fence, bound) {
		return nil
	}
	return &farFence{field: field, fence: fence, bound: bound}
}
