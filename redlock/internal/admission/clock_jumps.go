package admission

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// clockJumps distinguishes a jump of a node's clock from a jump of this host's own clock: the
// host was paused (a virtual machine), or its clock runs at a wrong rate. If the host withdrew
// the admission of nodes because of its own clock, it would stop every other host as well. So it
// withdraws only if most other nodes, at least two, certainly kept time with this host while the
// one jumped.
type clockJumps struct {
	missed atomic.Int64 // nanoseconds that this host may have missed; written under mu

	mu         sync.Mutex // guards what follows; no other mutex is taken inside it
	nodes      []nodeClock
	turn       uint64        // the last turn that was assigned; it orders samples independent of any clock
	reportedAt time.Duration // BootTime when a jump of this host was last reported; 0: never
}

// nodeClock is what is known of one node's clock.
type nodeClock struct {
	samples []ClockSample // the oldest first

	// A jump that is not judged yet:
	jumpAt      time.Duration // when it was first seen; 0: there is none
	firstJump   time.Duration // the jump as it was first seen
	beforeTurn  uint64        // turn of the last sample before the jump
	turn        uint64        // turn of the sample that showed it first
	largestJump time.Duration // the largest jump that was seen since

	gained time.Duration // by jumps that may have been this host's own
}

const (
	// jumpSettle is how long a node's jump waits for samples of the other nodes.
	jumpSettle = 300 * time.Millisecond
	// jumpSilence is the least time between two reports about this host's clock.
	jumpSilence = time.Minute
)

// NextTurn returns a number larger than all earlier ones. Turns order the questions to all nodes
// and their answers, independent of any clock.
func (f *Fleet) NextTurn() uint64 {
	f.jumps.mu.Lock()
	defer f.jumps.mu.Unlock()
	f.jumps.turn++
	return f.jumps.turn
}

// TotalMissed returns how much time this host may have missed so far.
func (f *Fleet) TotalMissed() time.Duration { return f.jumps.totalMissed() }

// AddMissed records that this host's clock missed d. For tests.
func (f *Fleet) AddMissed(d time.Duration) { f.jumps.missed.Add(int64(d)) }

func (j *clockJumps) totalMissed() time.Duration { return time.Duration(j.missed.Load()) }

// keep stores the samples of a node's clock.
func (j *clockJumps) keep(node int, w *clockWatch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.nodes[node].samples = append(j.nodes[node].samples[:0], w.samples...)
}

// note records a jump after the sample with turn before. It returns when the jump was first seen,
// and whether that is now.
func (j *clockJumps) note(node int, by, now time.Duration, before, turn uint64) (first time.Duration, isNew bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := &j.nodes[node]
	if isNew = n.jumpAt == 0; isNew {
		n.jumpAt, n.firstJump, n.beforeTurn, n.turn, n.largestJump = now, by, before, turn, 0
	}
	if by.Abs() > n.largestJump.Abs() {
		n.largestJump = by
	}
	return n.jumpAt, isNew
}

// judge decides about a jump. It was the node's if most of the other nodes that were sampled
// since then certainly kept time from before the jump until it was first seen. (A single node may
// share its clock with this host and be paused with it.) Otherwise it may have been this host's:
// then missed is the part that is not known already.
func (j *clockJumps) judge(node int) (isNodes bool, missed time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := &j.nodes[node]
	witnesses, others := 0, 0
	for i := range j.nodes {
		w := &j.nodes[i]
		if i == node || !w.sampledSince(n.turn) {
			continue
		}
		if others++; w.keptTimeSince(n.beforeTurn, n.firstJump) {
			witnesses++
		}
	}
	largest := n.largestJump
	n.jumpAt, n.largestJump = 0, 0
	if witnesses >= 2 && 2*witnesses > others {
		return true, 0
	}
	n.gained += max(largest, 0)
	missed = max(n.gained-j.totalMissed(), 0)
	j.missed.Add(int64(missed))
	return false, missed
}

func (n *nodeClock) sampledSince(turn uint64) bool {
	return len(n.samples) > 0 && n.samples[len(n.samples)-1].Turn >= turn
}

// keptTimeSince reports whether the clock certainly kept time since a sample with that turn or an
// earlier one. That means that it moved by less than half of the allowance. Or it moved by so
// much less than the node that jumped that the two moved against each other by more than the
// allowance. (If a node is distant, or the host is busy, much is uncertain.)
func (n *nodeClock) keptTimeSince(turn uint64, jump time.Duration) bool {
	last := n.samples[len(n.samples)-1]
	for _, before := range slices.Backward(n.samples) {
		if before.Turn <= turn {
			allowed := DriftAllowance(max(last.At-before.At, 0)) // negative if this host's clock was set back
			return last.movedSince(before) < max(allowed/2, jump.Abs()-allowed)
		}
	}
	return false
}

// shouldReport reports whether to report a jump that may be this host's. A clock that jumps all the
// time would fill the log.
func (j *clockJumps) shouldReport(now time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	should := j.reportedAt == 0 || now-j.reportedAt > jumpSilence
	if should {
		j.reportedAt = now
	}
	return should
}

// judgeJump decides what follows from a jump of a node's clock since the sample with turn before.
// Until it is decided whose clock jumped, the node has no vote here. If it was not certainly the
// node's, the node has no vote for max_ttl, on this host only: other hosts judge for themselves.
// Then this host's leases end earlier by the missed time.
func (j *judgement) judgeJump(by clockJump, before uint64) Verdict {
	s, fleet := j.snapshot, j.member.fleet
	first, isNew := fleet.jumps.note(j.member.index, time.Duration(by), s.At, before, s.Clock.Turn)
	if isNew { // once, because the other nodes may have jumped as well
		j.lookAtOthers()
	}
	if s.At < first+jumpSettle {
		return Verdict{VoteStatus: VoteStatus{State: Quarantined, Reason: by, Until: first + jumpSettle}}
	}
	isNodes, missed := fleet.jumps.judge(j.member.index)
	if isNodes {
		j.noticeWithdrawal(by, true)
		return j.beginQuarantine(true)
	}
	j.member.clock = clockWatch{}
	j.member.noVoteHereUntil = s.At + fleet.LongestTTL()
	if fleet.jumps.shouldReport(s.At) {
		j.addNotice(HostClockJumped, fmt.Sprintf("nodes' clocks moved by %v against this host's clock, and probably not those of one node alone: this host was paused (a virtual machine that was suspended or moved), "+
			"or its clock runs at a wrong rate, or nodes' clocks were stepped; its leases were aged by that time, and these nodes do not vote here for %v", time.Duration(by).Round(time.Millisecond), fleet.LongestTTL()))
	}
	j.hostMissed = missed > 0
	return j.quarantineHere()
}

// quarantineHere returns the verdict on a node that other hosts may well admit.
func (j *judgement) quarantineHere() Verdict {
	return Verdict{VoteStatus: VoteStatus{State: Quarantined, Reason: ErrHostJumped, Until: j.member.noVoteHereUntil}}
}

// ErrHostJumped means that only this host quarantines the node.
var ErrHostJumped = errors.New("its clock and this host's moved against each other, and it is not certain which of them jumped: the node may have released locks that are still held")
