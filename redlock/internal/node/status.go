package node

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

func (l *Lane) status() NodeStatus {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.statusLocked()
	if l.isConnected() && l.sentAt != 0 && now-l.sentAt > l.timing.answer {
		status.State, status.Reason = NodeDown, Silence(now-l.sentAt)
	}
	return status
}

// statusLocked needs mu.
func (l *Lane) statusLocked() NodeStatus {
	status := NodeStatus{Name: l.node.Name, Address: l.node.Address, State: l.state, Reason: l.reason, RTT: l.rtt, Warning: l.warning, Tracking: l.tracking.Load()}
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
func (l *Lane) why(left time.Duration) error {
	if l.state != NodeQuarantined || left == 0 {
		return l.reason
	}
	return &QuarantineError{Left: left, Reason: l.reason}
}

// unreachable says how a call of that kind would fail, or nil if it would be sent.
func (l *Lane) Unreachable(op string) *NodeError {
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

func (l *Lane) RoundTripTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rtt
}

// isTracking tells whether the node tells when a lock is released.
func (l *Lane) IsTracking() bool { return l.tracking.Load() }

// name is what the node is called.
func (l *Lane) Name() string { return l.node.Name }

// listens tells whether the node can tell when a lock is released.
func (l *Lane) Listens() bool { return l.node.Listen != nil }

// shown is a status as others are to see it.
func (l *Lane) Shown() NodeStatus { return l.asShown(l.status()) }

// loops is how often the lane's loop came round.
func (l *Lane) Loops() uint64 { return l.rounds.Load() }

// reached is closed when the first attempt to connect has ended.
func (l *Lane) Reached() <-chan struct{} { return l.settled }
