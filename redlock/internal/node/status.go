package node

import (
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// State is where a node stands.
type State string

const (
	Connecting State = "connecting" // not reached yet since the start
	Ready      State = "ready"      // answers, and its votes count
	Down       State = "down"       // cannot be reached, or does not answer
	// Quarantined: it may have forgotten votes, and has none until every
	// lease is over that it may have voted for. Then it votes again.
	Quarantined State = "quarantined"
	// Refused: it must not vote until someone fixes what Reason says; or it
	// refuses all that a lock needs.
	Refused State = "refused"
)

// Status is what is known of a node.
type Status struct {
	Name    string
	Address string
	State   State
	Reason  error         // why it is not ready; or, where it is, what it answered with an error lately
	Left    time.Duration // of a quarantine; 0 also where it waits for something else than time
	Needs   int           // of a quarantine: so many other nodes have to vote when it is over, for it to copy fencing counters from; 0: none
	Found   int           // how many of these there will be, as it is now
	Here    bool          // the quarantine is this host's alone, whose clock may have stood still: nobody can end it early
	Warning []string      // what makes the locks less safe or available than they could be, with the fix
	RTT     time.Duration // of the last round trip that was answered; 0 before the first
	// Tracking: it reports when a lock with waiters is released (CLIENT
	// TRACKING). Where fewer than a quorum do, who waits tries at random intervals.
	Tracking bool
}

// Wanting tells whether too few other nodes vote now for it to vote after its quarantine.
func (s Status) Wanting() bool { return s.Left > 0 && s.Found < s.Needs }

// Volatile tells whether the node keeps no data over a restart.
func (s Status) Volatile() bool { return slices.ContainsFunc(s.Warning, admission.IsNoPersistence) }

// WarningsBesidesVolatile returns the warnings without the one that says Volatile.
func (s Status) WarningsBesidesVolatile() []string {
	return slices.DeleteFunc(slices.Clone(s.Warning), admission.IsNoPersistence)
}

func (l *Lane) currentStatus() Status {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.statusLocked()
	if l.isConnected() && l.sentAt != 0 && now-l.sentAt > l.timing.answer {
		status.State, status.Reason = Down, Silence(now-l.sentAt)
	}
	return status
}

// statusLocked needs mu.
func (l *Lane) statusLocked() Status {
	status := Status{Name: l.node.Name, Address: l.node.Address, State: l.state, Reason: l.reason, RTT: l.rtt, Warning: l.warning, Tracking: l.tracking.Load()}
	if l.trackingErr != nil && l.isConnected() {
		status.Warning = append(slices.Clone(l.warning), l.trackingErr.Error())
	}
	switch l.state {
	case Ready:
		status.Reason = l.lastError
	case Quarantined:
		status.Left = l.quarantineLeft(l.clock())
		status.Here = l.reason == admission.ErrHostJumped
		status.Reason = l.whyNoVote(status.Left)
	}
	return status
}

// quarantineLeft returns how long the quarantine lasts at least; 0: it does not end with time
// alone. When its time has passed, it lasts until the lane has looked at the node, which
// takes a few round trips: node_timeout is a guess. A waiter must not take these for an
// endless quarantine. The caller holds mu.
func (l *Lane) quarantineLeft(now time.Duration) time.Duration {
	left := max(l.until-now, 0)
	if left == 0 && l.until != 0 && !l.needsNodes {
		return l.timing.answer
	}
	return left
}

// whyNoVote says why the node has no vote though it is connected. The caller holds mu.
func (l *Lane) whyNoVote(left time.Duration) error {
	if l.state != Quarantined || left == 0 {
		return l.reason
	}
	return &QuarantineError{Left: left, Reason: l.reason}
}

// Unreachable says how a call of that kind would fail, or nil if it would be sent.
func (l *Lane) Unreachable(op string) *Error {
	status := l.currentStatus()
	if status.State == Ready {
		return nil
	}
	return &Error{Node: l.node.Name, Op: op, Failure: failureOf(status.State), Err: status.Reason}
}

// failureOf is how a vote fails that is wanted of a node in such a state.
func failureOf(state State) Failure {
	switch state {
	case Quarantined:
		return FailedQuarantined
	case Refused:
		return FailedRefused
	}
	return FailedDown
}

// RoundTripTime returns how long the last answered round trip took.
func (l *Lane) RoundTripTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rtt
}

// IsTracking tells whether the node tells when a lock is released.
func (l *Lane) IsTracking() bool { return l.tracking.Load() }

// Name is what the node is called.
func (l *Lane) Name() string { return l.node.Name }

// Listens tells whether the node can tell when a lock is released.
func (l *Lane) Listens() bool { return l.node.Listen != nil }

// Status is the node's status as others are to see it.
func (l *Lane) Status() Status { return l.withDenial(l.currentStatus()) }

// Loops is how often the lane's loop came round.
func (l *Lane) Loops() uint64 { return l.rounds.Load() }

// Connection is the number of the connection, or of the last one: what a node said of its keys over
// another connection may be of another process.
func (l *Lane) Connection() uint64 { return l.connections.Load() }

// Reached is closed when the first attempt to connect has ended.
func (l *Lane) Reached() <-chan struct{} { return l.settled }
