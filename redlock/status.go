package redlock

import (
	"slices"
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
		node := l.Shown()
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
