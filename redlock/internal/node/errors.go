package node

import (
	"errors"
	"fmt"
	"time"
)

// ErrClosed means that the Quorum was closed.
var ErrClosed = errors.New("the quorum is closed")

// Failure is one word for how a node failed, for programs.
type Failure string

const (
	FailedTimeout Failure = "timeout" // no answer within node_timeout
	FailedDown    Failure = "down"    // no connection: refused, broken, being dialled
	FailedFull    Failure = "full"    // too many calls wait for it in its lane
	FailedLate    Failure = "late"    // it got the request after the attempt had ended
	FailedError   Failure = "error"   // it answered with an error

	FailedQuarantined Failure = "quarantined" // it may have lost votes: see Quarantined
	FailedRefused     Failure = "refused"     // it must not vote: see Refused
)

// Error is the failure of one node. It unwraps to the cause.
type Error struct {
	Node    string
	Op      string // "acquire", "extend", "release", "who", "connect"
	Failure Failure
	Err     error
}

func (e *Error) Error() string { return e.Node + ": " + e.What() }

// What returns the failure without the node's name.
func (e *Error) What() string { return fmt.Sprintf("%s: %s: %v", e.Op, e.Failure, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// QuarantineError says why a quarantined node has no vote, and for how long.
type QuarantineError struct {
	Left   time.Duration
	Reason error
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("no vote for at least another %v: %v", Seconds(e.Left), e.Reason)
}

func (e *QuarantineError) Unwrap() error { return e.Reason }

// FarError means that the network takes so long that the node's answers come after node_timeout, when
// its votes do not count any more.
type FarError struct{ Trip, Timeout time.Duration }

func (e *FarError) Error() string {
	return fmt.Sprintf("answers after %v, but node_timeout is %v: raise node_timeout to at least %v on all hosts, or use nodes that are nearer", e.Trip.Round(time.Millisecond), e.Timeout, e.needed())
}

// needed returns a node_timeout in which the node can also log in, in steps of 50 ms.
func (e *FarError) needed() time.Duration {
	const step = 50 * time.Millisecond
	return (3*e.Trip + step - 1).Truncate(step)
}

// Seconds rounds a duration up, for messages.
func Seconds(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return (d + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond)
	}
	return (d + time.Second - 1).Truncate(time.Second)
}
