package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// Status is what the Quorum knows about all nodes, without asking them.
type Status struct {
	Quorum  int
	Ready   int
	Nodes   []NodeStatus
	Left    time.Duration // until a quorum can vote, if only quarantines prevent that; otherwise 0
	MaxTTL  time.Duration // of the fleet: the largest of any host
	Warning []string      // of the fleet as a whole, with the fix
	Counts  Counts
	// Change is the change of the nodes in this process's Options; nil: they have none.
	Change *Change
	// AllNew means that none of the nodes had an epoch or fencing counters when this process first
	// saw it, and no quorum has voted since. Only then can they be new nodes, which have forgotten no
	// lock.
	AllNew bool
}

// Spare returns how many more nodes may fail before there is no quorum; negative: there is
// none now.
func (s Status) Spare() int {
	if s.Change != nil {
		return s.Change.spare
	}
	return s.Ready - s.Quorum
}

// Status returns what the Quorum knows about the nodes. It does not ask them.
func (q *Quorum) Status() Status {
	status := Status{
		Quorum:  q.system.Needed(),
		Nodes:   make([]NodeStatus, len(q.lanes)),
		MaxTTL:  q.admission.LongestTTL(),
		Warning: q.admission.Warnings(),
		Counts:  q.counts.snapshot(),
		AllNew:  q.admission.IsNew(),
		Change:  q.change(),
	}
	left := make([]time.Duration, len(q.lanes))
	var ready quorum.Set
	for i, l := range q.lanes {
		node := l.Status()
		if step := q.admission.StepOf(i); step != admission.Settled {
			node.Step = step.String()
		}
		status.Nodes[i] = node
		left[i] = never
		switch {
		case node.State == NodeReady:
			status.Ready++
			ready |= quorum.Of(i)
			left[i] = 0
		case node.State == NodeQuarantined && node.Left > 0: // otherwise it also waits for something else
			left[i] = node.Left
		}
	}
	status.Left = q.untilQuorum(left)
	if status.Change != nil {
		status.Change.spare = q.system.Spare(ready)
	}
	q.noteSources(&status)
	return status
}

// noteSources marks nodes whose quarantine will not end when its time has passed, because they
// also need counters from other nodes: of each list, enough to meet every majority.
func (q *Quorum) noteSources(status *Status) {
	if q.options.NoQuarantine {
		return
	}
	var found, lost quorum.Set
	for i := range q.lanes {
		node, loss := &status.Nodes[i], q.admission.CounterLoss(i)
		switch {
		case node.State == NodeReady:
			found |= quorum.Of(i)
		case node.State != NodeQuarantined:
		case !loss.Lost, loss.Total():
			found |= quorum.Of(i) // it has its counters, or starts new ones: it only waits for its time to pass
		default:
			lost |= quorum.Of(i)
		}
	}
	for _, list := range q.system.Lists() {
		if list.Blocks(found) || list.Decides(lost) { // the latter as with new nodes: the fleet will soon notice that none has counters
			continue
		}
		for i := range status.Nodes {
			if lost.Has(i) {
				status.Nodes[i].SourcesNeeded, status.Nodes[i].SourcesFound = list.Blocking(), list.Count(found)
			}
		}
	}
}

// untilQuorum returns when enough quarantines will have ended for a quorum. left is, by node, when
// it can vote: 0 if it can now, or never. The result is 0 if there is a quorum now, or never.
func (q *Quorum) untilQuorum(left []time.Duration) time.Duration {
	until := quorum.AtMost(q.system, func(node int) time.Duration { return left[node] })
	if until == never {
		return 0
	}
	return until
}

// Counts has how often each event happened since the Quorum was made. The values only grow.
type Counts struct {
	Grants        uint64 // leases granted
	HandOvers     uint64 // releases that were also an attempt for another client on this host
	Passes        uint64 // grants without asking a node, for another client on this host
	Splits        uint64 // attempts that split the votes, so that no client can have won
	Wakeups       uint64 // waits that ended because nodes reported that the lock may be free
	WriteBacks    uint64 // attempts that needed a second round for the fencing token
	Repairs       uint64 // keys set again on nodes that had lost them
	Lost          uint64 // leases lost, for any reason
	Quarantines   uint64 // quarantines that this process began
	ClockJumps    uint64 // jumps of nodes' clocks or of this host's clock
	Withdrawals   uint64 // admissions withdrawn: clock jumps, and other data
	CounterLosses uint64 // losses of the fencing counters of a quorum
}

// counts has the counters behind Counts.
type counts struct {
	grants, writeBacks, repairs, lost    atomic.Uint64
	handOvers, passes, splits, wakeups   atomic.Uint64
	quarantines, clockJumps, withdrawals atomic.Uint64
	counterLosses                        atomic.Uint64
}

func (c *counts) snapshot() Counts {
	return Counts{
		Grants:        c.grants.Load(),
		HandOvers:     c.handOvers.Load(),
		Passes:        c.passes.Load(),
		Splits:        c.splits.Load(),
		Wakeups:       c.wakeups.Load(),
		WriteBacks:    c.writeBacks.Load(),
		Repairs:       c.repairs.Load(),
		Lost:          c.lost.Load(),
		Quarantines:   c.quarantines.Load(),
		ClockJumps:    c.clockJumps.Load(),
		Withdrawals:   c.withdrawals.Load(),
		CounterLosses: c.counterLosses.Load(),
	}
}

// Notice reports something that the operator of the nodes must know. It is reported once, when it
// is noticed.
type Notice struct {
	Kind NoticeKind
	Node string // "": it concerns all nodes
	Text string
}

// NoticeKind is the subject of a Notice.
type NoticeKind string

const (
	// ClockJumped: a node's clock was stepped. Keys may have expired early there, so the
	// node is quarantined.
	ClockJumped NoticeKind = "clock-jump"
	// HostClockJumped: this host's clock stopped for a time, or all nodes' clocks were stepped.
	// The host's leases count as that much older.
	HostClockJumped NoticeKind = "host-clock-jump"
	// Withdrawn: a node's admission was withdrawn for another reason.
	Withdrawn NoticeKind = "withdrawn"
	// CountersLost: a quorum of nodes lost its fencing counters, or is new.
	CountersLost NoticeKind = "counters-lost"
	// NewFleet: all nodes are new, so their fencing counters start. That is normal.
	NewFleet NoticeKind = "new-fleet"
)

// Pulse counts the rounds of the loops that leases depend on.
type Pulse struct {
	Keeper uint64 // the loop that extends leases and reports LOST
	Lanes  uint64 // the loops of all nodes' lanes together
}

// AdvancedSince reports whether, since an earlier Pulse, the keeper and at least one lane completed
// a round. The lane of a node that is down or hangs completes rounds, too.
func (p Pulse) AdvancedSince(earlier Pulse) bool {
	return p.Keeper != earlier.Keeper && p.Lanes != earlier.Lanes
}

// Pulse makes the keeper and all lanes run a round, and returns how many rounds they have
// completed so far. It does not wait for them: call it again later. The keeper completes a round
// at once, and a lane within about ten node timeouts (at least a second). A loop that takes
// longer hangs for good. Restart the process then: its locks stay on the nodes.
func (q *Quorum) Pulse() Pulse {
	p := Pulse{Keeper: q.keeper.rounds.Load()}
	q.keeper.wakeUp()
	for _, l := range q.lanes {
		p.Lanes += l.Rounds()
		l.Wake()
	}
	return p
}
