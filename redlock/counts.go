package redlock

import "sync/atomic"

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
)
