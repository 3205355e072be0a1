package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// State is the state of a node, in one word.
type State string

const (
	Connecting State = "connecting" // not reached yet since the start
	Ready      State = "ready"      // answers, and its votes count
	Down       State = "down"       // cannot be reached, or does not answer
	// Quarantined: it may have lost votes, and has none until every lease has expired that it may
	// have voted for. Then it votes again.
	Quarantined State = "quarantined"
	// Refused: it must not vote until someone fixes what Reason says, or it refuses what locks
	// need.
	Refused State = "refused"
)

// Status is what is known of a node.
type Status struct {
	Name          string
	Address       string
	State         State
	Reason        error         // why it is not ready; if it is ready, the last error that it answered
	Left          time.Duration // of a quarantine; also 0 if the quarantine waits for something other than time
	SourcesNeeded int           // number of other nodes that must vote at the end of a quarantine, to copy fencing counters from; 0: none
	SourcesFound  int           // how many of these there will be, as of now
	OnlyHere      bool          // only this host, whose clock may have stood still, quarantines the node: nobody can end that early
	Warning       []string      // what makes the locks less safe or available than they could be, with the fix
	RTT           time.Duration // of the last round trip that only read; 0 before the first
	Write         time.Duration // of the last round trip that wrote; 0 before the first
	// Step is the step of a change of the nodes on this node; "": it is not being changed.
	Step string
	// Calls: it calls waiters when a lock is released. If fewer than a quorum of nodes do, waiters
	// ask at random intervals.
	Calls bool
}

// NeedsOthers reports whether too few other nodes vote now for this node to vote after its
// quarantine.
func (s Status) NeedsOthers() bool { return s.Left > 0 && s.SourcesFound < s.SourcesNeeded }

// IsVolatile reports whether the node keeps no data over a restart.
func (s Status) IsVolatile() bool { return slices.ContainsFunc(s.Warning, admission.IsNoPersistence) }

// OtherWarnings returns the warnings without the one that IsVolatile reports.
func (s Status) OtherWarnings() []string {
	return slices.DeleteFunc(slices.Clone(s.Warning), admission.IsNoPersistence)
}

func (l *Lane) currentStatus() Status {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.statusLocked()
	if l.isConnectedLocked() && l.farTrip == 0 && l.slowWrite == 0 && l.oldestSentAt != 0 && now-l.oldestSentAt > l.timing.answer {
		status.State, status.Reason = Down, Silence(now-l.oldestSentAt)
	}
	return status
}

// statusLocked returns the status. The caller holds mu.
func (l *Lane) statusLocked() Status {
	status := Status{Name: l.node.Name, Address: l.node.Address, State: l.state, Reason: l.reason, RTT: l.readTrip, Write: l.writeTrip, Warning: l.warnings, Calls: l.listening.Load() && l.publishes}
	if err := l.whyNotCalledLocked(); err != nil && l.isConnectedLocked() {
		status.Warning = append(slices.Clone(l.warnings), err.Error())
	}
	switch l.state {
	case Ready:
		if late := l.lateReasonLocked(); late != nil {
			status.State, status.Reason = Down, late
		} else {
			status.Reason = l.lastError
		}
	case Down:
		if errors.As(l.reason, new(*RightsError)) { // it answers, but there can be no connection
			status.State = Refused
		}
	case Quarantined:
		status.Left = l.quarantineLeftLocked(l.clock())
		status.OnlyHere = l.reason == admission.ErrHostJumped
		status.Reason = l.whyNoVoteLocked(status.Left)
	}
	return status
}

// lateReasonLocked returns why all answers that a lock needs come after node_timeout; nil: they do not.
// The caller holds mu.
func (l *Lane) lateReasonLocked() error {
	switch {
	case l.farTrip > 0:
		return l.far(l.farTrip)
	case l.slowWrite > 0:
		return l.writesSlowly(l.slowWrite)
	}
	return nil
}

// Late returns the reason why a call was not answered within d.
func (l *Lane) Late(d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lateLocked(d)
}

func (l *Lane) lateLocked(d time.Duration) error {
	return cmp.Or(l.lateReasonLocked(), error(Silence(d)))
}

// quarantineLeftLocked returns the least time that the quarantine lasts; 0: it does not end by itself.
// When its time has passed, it lasts until the lane has looked at the node. That takes a few
// round trips, for which node_timeout is an estimate. A waiter must not take these for an endless
// quarantine. The caller holds mu.
func (l *Lane) quarantineLeftLocked(now time.Duration) time.Duration {
	left := max(l.quarantineEnd-now, 0)
	if left == 0 && l.quarantineEnd != 0 && !l.needsNodes {
		return l.timing.answer
	}
	return left
}

// whyNoVoteLocked returns why the node has no vote although it is connected. The caller holds mu.
func (l *Lane) whyNoVoteLocked(left time.Duration) error {
	if l.state != Quarantined || left == 0 {
		return l.reason
	}
	return &QuarantineError{Left: left, Reason: l.reason}
}

// Unreachable returns the failure of a call if it would fail now, or nil if it would be sent.
func (l *Lane) Unreachable(op string) *Error {
	status := l.currentStatus()
	if status.State == Ready {
		return nil
	}
	return &Error{Node: l.node.Name, Op: op, Failure: failureOf(status.State), Err: status.Reason}
}

// failureOf returns the failure of a call that needs a vote of a node in this state.
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

// CallsWaiters reports whether the node calls waiters.
func (l *Lane) CallsWaiters() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listening.Load() && l.publishes
}

// whyNotCalledLocked returns why the node does not call waiters; nil: it does, or it is not known why not.
// The caller holds mu.
func (l *Lane) whyNotCalledLocked() error {
	switch {
	case l.listenErr != nil && denialOf(l.listenErr) == denials["NOPERM"]:
		return fmt.Errorf("%s: %w%s", notCalled, l.listenErr, callFix)
	case l.listenErr != nil:
		return fmt.Errorf("%s: %w", notCalled, l.listenErr)
	case !l.publishes:
		return fmt.Errorf("%s: NOPERM this user has no permissions to run the 'publish' command, or to use its channel%s", notCalled, callFix)
	}
	return nil
}

const (
	notCalled = "it does not call waiters when a lock is released, so they ask at intervals"
	callFix   = "; fix: ACL SETUSER with +subscribe +publish &redlockd:* for this user"
)

// Name returns the node's name.
func (l *Lane) Name() string { return l.node.Name }

// Listens reports whether the node can call waiters.
func (l *Lane) Listens() bool { return l.node.Listen != nil }

// Status returns the node's status as other packages see it.
func (l *Lane) Status() Status { return l.withDenial(l.currentStatus()) }

// Rounds returns how many rounds the lane's loop has made.
func (l *Lane) Rounds() uint64 { return l.rounds.Load() }

// Connection returns the number of the present or last connection. What a node reported about its
// keys over another connection may be of another process.
func (l *Lane) Connection() uint64 { return l.connections.Load() }

// Reached returns a channel that is closed when the first attempt to connect has ended.
func (l *Lane) Reached() <-chan struct{} { return l.firstAttemptDone }
