package redlock

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// jumps tell a node whose clock jumped from a host whose own clock did: one that
// stood still (a virtual machine that was paused), or runs at a wrong rate. To
// take back the admission of nodes for that would stop every other host as well.
// So it is done only where most other nodes, two at least, have certainly kept
// time with this host while the one jumped.
type jumps struct {
	missed atomic.Int64 // nanoseconds that this host may have missed; written under mu

	mu    sync.Mutex  // guards what follows
	nodes []nodeClock // by node
	turn  uint64      // of the last sample: the order of samples, whatever a clock does
	told  time.Duration
}

// nodeClock is what is known of a node's clock.
type nodeClock struct {
	samples []clockSample // the oldest first

	jumpAt time.Duration // when a jump that is not judged yet was first seen; 0: none
	first  time.Duration // by how much, then
	before uint64        // the turn of the last sample that showed that
	turn   uint64        // and of the one that it was seen by
	by     time.Duration // the most that was seen since
	gained time.Duration // by jumps that may have been this host's own
}

const (
	// jumpSettle is how long other nodes are given to be looked at.
	jumpSettle = 300 * time.Millisecond
	// jumpSilence is how long nothing more is told of a host's clock.
	jumpSilence = time.Minute
)

// next is the turn of another sample.
func (j *jumps) next() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.turn++
	return j.turn
}

// keep keeps what is known of a node's clock.
func (j *jumps) keep(node int, w *clockWatch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.nodes[node].samples = append(j.nodes[node].samples[:0], w.samples...)
}

// note remembers a jump since a turn and returns when it was first seen; fresh: now.
func (j *jumps) note(node int, by, now time.Duration, before, turn uint64) (first time.Duration, fresh bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := &j.nodes[node]
	if fresh = n.jumpAt == 0; fresh {
		n.jumpAt, n.first, n.before, n.turn, n.by = now, by, before, turn, 0
	}
	if by.Abs() > n.by.Abs() {
		n.by = by
	}
	return n.jumpAt, fresh
}

// judge ends a jump: it was the node's where most of the other nodes that were looked at
// since certainly kept time from before it on, until it was first seen. (One alone may
// share its clock with this host, being paused with it.) Otherwise it may have been this
// host's: then missed is by how much more than is known already.
func (j *jumps) judge(node int) (nodes bool, missed time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := &j.nodes[node]
	witnesses, others := 0, 0
	for i := range j.nodes {
		w := &j.nodes[i]
		if i == node || !w.sampledSince(n.turn) {
			continue
		}
		if others++; w.keptTimeSince(n.before, n.first) {
			witnesses++
		}
	}
	most := n.by
	n.jumpAt, n.by = 0, 0
	if witnesses >= 2 && 2*witnesses > others {
		return true, 0
	}
	n.gained += max(most, 0)
	missed = max(n.gained-j.totalMissed(), 0)
	j.missed.Add(int64(missed))
	return false, missed
}

func (n *nodeClock) sampledSince(turn uint64) bool {
	return len(n.samples) > 0 && n.samples[len(n.samples)-1].turn >= turn
}

// keptTimeSince tells whether the clock certainly moved by less than half of the
// allowance since a turn, or longer; or by so much less than a node that jumped that
// the two moved against each other by more than the allowance. (A node that is far
// away, or a host that is busy, leaves much uncertain.)
func (n *nodeClock) keptTimeSince(turn uint64, jump time.Duration) bool {
	last := n.samples[len(n.samples)-1]
	for _, before := range slices.Backward(n.samples) {
		if before.turn <= turn {
			allowed := drift(max(last.at-before.at, 0)) // less than 0 where this host's clock was set back
			return last.movedSince(before) < max(allowed/2, jump.Abs()-allowed)
		}
	}
	return false
}

// tells tells whether somebody is to hear of a jump that may be this host's: one
// that goes on jumping would fill the log.
func (j *jumps) tells(now time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	tells := j.told == 0 || now-j.told > jumpSilence
	if tells {
		j.told = now
	}
	return tells
}

// totalMissed is how much time this host may have missed so far.
func (j *jumps) totalMissed() time.Duration { return time.Duration(j.missed.Load()) }

// judgeJump says what follows from a node's clock jump against a sample of
// before. While it is not known whose it was, the node has no vote here. Where it
// was not certainly the node's, it has none for max_ttl, here and not elsewhere:
// other hosts judge for themselves. And this host's leases are worth so much less.
func (l *lane) judgeJump(s *sighting, by clockJump, before uint64) ruling {
	first, fresh := l.fleet.jumps.note(l.index, time.Duration(by), s.at, before, s.clock.turn)
	if fresh {
		l.fleet.lookAll(l) // once: the others may do the same
	}
	if s.at < first+jumpSettle {
		return ruling{standing: standing{state: NodeQuarantined, reason: by, until: first + jumpSettle}}
	}
	nodes, missed := l.fleet.jumps.judge(l.index)
	if nodes {
		l.withdrawn(by, true)
		return l.mark(s, true)
	}
	l.memory.watch = clockWatch{}
	l.memory.localUntil = s.at + l.fleet.longestTTL()
	l.fleet.hostJumped(by, missed, s.at)
	return l.onlyHere()
}

// onlyHere is the standing of a node that other hosts may well believe.
func (l *lane) onlyHere() ruling {
	return ruling{standing: standing{state: NodeQuarantined, reason: errHostJumped, until: l.memory.localUntil}}
}

var errHostJumped = errors.New("its clock and this host's moved against each other, and it is not certain which of them jumped: it may have let locks go that are still held")

// hostJumped tells of it, and takes the time that this host may have missed off
// its leases.
func (f *fleet) hostJumped(by clockJump, missed, now time.Duration) {
	if f.jumps.tells(now) {
		f.counts.clockJumps.Add(1)
		f.tell(Notice{Kind: HostClockJumped, Text: fmt.Sprintf("nodes' clocks moved by %v against this host's, and not one node's alone for certain: this host was paused (a virtual machine that was suspended or moved), "+
			"or its clock runs at a wrong rate, or nodes' clocks were stepped; its leases count as so much older, and these nodes have no vote here for %v", time.Duration(by).Round(time.Millisecond), f.longestTTL())})
	}
	if missed > 0 {
		f.aged()
	}
}

// lookAt has some nodes looked at now.
func (f *fleet) lookAt(nodes []int) {
	for _, i := range nodes {
		f.lanes[i].lookSoon()
	}
}

// lookAll has all other nodes looked at now.
func (f *fleet) lookAll(but *lane) {
	for _, l := range f.lanes {
		if l != but {
			l.lookSoon()
		}
	}
}
