package redlock

import (
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// NodeState is where a node stands.
type NodeState string

const (
	NodeConnecting NodeState = "connecting" // not reached yet since the start
	NodeReady      NodeState = "ready"      // answers, and its votes count
	NodeDown       NodeState = "down"       // cannot be reached, or does not answer
	// NodeQuarantined: it may have forgotten votes, and has none until every
	// lease is over that it may have voted for. It is admitted by itself.
	NodeQuarantined NodeState = "quarantined"
	// NodeRefused: it must not vote until somebody mends what Reason says; or it
	// refuses all that a lock needs.
	NodeRefused NodeState = "refused"
)

// NodeStatus is what is known of a node.
type NodeStatus struct {
	Name    string
	Address string
	State   NodeState
	Reason  error         // why it is not ready; or, where it is, what it answered with an error lately
	Left    time.Duration // of a quarantine; 0 also where it waits for something else than time
	Needs   int           // of a quarantine: so many other nodes have to vote when it is over, for it to copy fencing counters from; 0: none
	Found   int           // how many of these there will be, as it is now
	Here    bool          // the quarantine is this host's alone, whose clock may have stood still: nobody can end it early
	Warning []string      // what makes the locks less safe or available than they could be, with the fix
	RTT     time.Duration // of the last round trip that was answered; 0 before the first
	// Tracking: it tells when a lock that somebody waits for is given back (CLIENT
	// TRACKING). Where fewer than a quorum do, who waits tries at random intervals.
	Tracking bool
}

// Wanting: when its quarantine is over it has no vote yet, as it is now.
func (s NodeStatus) Wanting() bool { return s.Left > 0 && s.Found < s.Needs }

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
		node := l.asShown(l.status())
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

func (l *lane) status() NodeStatus {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.statusLocked()
	if l.isConnected() && l.sentAt != 0 && now-l.sentAt > l.timing.answer {
		status.State, status.Reason = NodeDown, silence(now-l.sentAt)
	}
	return status
}

// statusLocked needs mu.
func (l *lane) statusLocked() NodeStatus {
	status := NodeStatus{Name: l.node.Name, Address: l.node.Address, State: l.state, Reason: l.reason, RTT: l.rtt, Warning: l.warning, Tracking: l.tracks.Load()}
	if l.mute != nil && l.isConnected() {
		status.Warning = append(slices.Clone(l.warning), l.mute.Error())
	}
	switch l.state {
	case NodeReady:
		status.Reason = l.trouble
	case NodeQuarantined:
		status.Left = max(l.until-l.clock(), 0)
		status.Here = l.reason == admission.ErrHostJumped
		status.Reason = l.why(status.Left)
	}
	return status
}

// why says why the node has no vote though it is connected. The caller holds mu.
func (l *lane) why(left time.Duration) error {
	if l.state != NodeQuarantined || left == 0 {
		return l.reason
	}
	return &QuarantineError{Left: left, Reason: l.reason}
}

// unreachable says how a call of that kind would fail, or nil if it would be sent.
func (l *lane) unreachable(op string) *NodeError {
	status := l.status()
	if status.State == NodeReady {
		return nil
	}
	return &NodeError{Node: l.node.Name, Op: op, Failure: failureOf(status.State), Err: status.Reason}
}

// failureOf is how a vote fails that is wanted of a node in such a state.
func failureOf(state NodeState) Failure {
	switch state {
	case NodeQuarantined:
		return FailedQuarantined
	case NodeRefused:
		return FailedRefused
	}
	return FailedDown
}
