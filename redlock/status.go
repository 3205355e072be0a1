package redlock

import (
	"slices"
	"sync/atomic"
	"time"
)

// Status is what is known of all nodes, from memory.
type Status struct {
	Quorum  int
	Ready   int
	Nodes   []NodeStatus
	Left    time.Duration // until quarantines alone are over that keep a quorum from voting; 0 where none do
	MaxTTL  time.Duration // of the fleet: the largest that any host uses
	Warning []string      // of the fleet as a whole, with the fix
	Counts  Counts
}

// Spare is how many more nodes may fail before there is no quorum; negative
// where there is none.
func (s Status) Spare() int { return s.Ready - s.Quorum }

// Status returns what is known of the nodes. It does not ask them.
func (q *Quorum) Status() Status {
	status := Status{
		Quorum:  q.quorum,
		Nodes:   make([]NodeStatus, len(q.lanes)),
		MaxTTL:  q.admission.LongestTTL(),
		Warning: q.admission.Warnings(),
		Counts:  q.counts.snapshot(),
	}
	var left []time.Duration
	for i, l := range q.lanes {
		node := l.Status()
		status.Nodes[i] = node
		switch node.State {
		case NodeReady:
			status.Ready++
		case NodeQuarantined:
			if node.Left > 0 { // else it waits for more than time
				left = append(left, node.Left)
			}
		}
	}
	status.Left = untilQuorum(left, q.quorum-status.Ready)
	q.noteSources(&status)
	return status
}

// noteSources tells of quarantines which time alone does not end, before it is over: see
// vouch.
func (q *Quorum) noteSources(status *Status) {
	if q.options.NoQuarantine {
		return
	}
	found := status.Ready
	var lost []*NodeStatus
	for i := range q.lanes {
		node, loss := &status.Nodes[i], q.admission.CounterLoss(i)
		switch {
		case node.State != NodeQuarantined:
		case !loss.Lost, loss.Total:
			found++ // it has its counters, or begins anew: time is all that it waits for
		default:
			lost = append(lost, node)
		}
	}
	if len(lost) >= q.quorum {
		return // as with new nodes: that none has any is about to be seen
	}
	for _, node := range lost {
		node.Needs, node.Found = q.admission.CopySources(), found
	}
}

// untilQuorum is when so many quarantines will be over; 0 where none need to,
// or where there are not so many.
func untilQuorum(left []time.Duration, missing int) time.Duration {
	if missing <= 0 || missing > len(left) {
		return 0
	}
	slices.Sort(left)
	return left[missing-1]
}

// Counts are how often something happened since the Quorum was made. They only
// grow.
type Counts struct {
	Grants        uint64 // leases granted
	HandOvers     uint64 // releases that were at once a grant, or an attempt, for somebody else on this host
	Splits        uint64 // attempts of which nobody's can have been won
	Wakeups       uint64 // waits that ended because a node told that the lock may be free
	WriteBacks    uint64 // grants and attempts that took a second round for the fencing token
	Repairs       uint64 // keys set again on a node that had lost them
	Lost          uint64 // leases lost, for whatever reason
	Quarantines   uint64 // quarantines that this process began
	ClockJumps    uint64 // clocks that jumped: of nodes, or this host's own
	Withdrawals   uint64 // admissions taken back: clock jumps, and others' data
	CounterLosses uint64 // losses of the fencing counters of a quorum
}

// counts is Counts while it is counted.
type counts struct {
	grants, writeBacks, repairs, lost    atomic.Uint64
	handOvers, splits, wakeups           atomic.Uint64
	quarantines, clockJumps, withdrawals atomic.Uint64
	counterLosses                        atomic.Uint64
}

func (c *counts) snapshot() Counts {
	return Counts{
		Grants:        c.grants.Load(),
		HandOvers:     c.handOvers.Load(),
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

// Notice is something that whoever runs the nodes must know, told once, when it
// is noticed.
type Notice struct {
	Kind NoticeKind
	Node string // "" where it concerns all
	Text string
}

// NoticeKind is one word for it.
type NoticeKind string

const (
	// ClockJumped: a node's clock was stepped. Keys may have expired early there:
	// the node is quarantined.
	ClockJumped NoticeKind = "clock-jump"
	// HostClockJumped: this host's clock stood still, or all nodes' clocks were
	// stepped. Its leases count as so much older.
	HostClockJumped NoticeKind = "host-clock-jump"
	// Withdrawn: a node's admission was taken back for another reason.
	Withdrawn NoticeKind = "withdrawn"
	// CountersLost: a quorum of nodes lost its fencing counters, or is new.
	CountersLost NoticeKind = "counters-lost"
	// NewFleet: all nodes are new, so fencing counters begin. That is normal.
	NewFleet NoticeKind = "new-fleet"
)
