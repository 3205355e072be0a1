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
	return fmt.Sprintf("answers after %v, but node_timeout is %v: raise node_timeout to at least %v on all hosts, or use nodes that are nearer", e.Trip.Round(time.Millisecond), e.Timeout, timeoutFor(e.Trip))
}

// timeoutFor returns a node_timeout for nodes that take trip to answer, in steps of 50 ms: a call may
// have to wait until the node has answered the one before it.
func timeoutFor(trip time.Duration) time.Duration {
	const step = 50 * time.Millisecond
	return (3*trip + step - 1).Truncate(step)
}

// SlowWriteError means that the node answers calls that write only after node_timeout, when its votes do
// not count any more. It may read much faster.
type SlowWriteError struct {
	Trip, Timeout time.Duration
	AtLeast       bool // it has not answered after Trip
}

func (e *SlowWriteError) Error() string {
	took, raise := "take", ""
	if e.AtLeast {
		took = "take longer than"
	} else if timeout := timeoutFor(e.Trip); timeout <= maxAdvice {
		raise = fmt.Sprintf("raise node_timeout to at least %v on all hosts, or ", timeout)
	}
	return fmt.Sprintf("writes %s %v, but node_timeout is %v: %sfind out what delays its writes (its disk, if appendfsync is always; CLIENT PAUSE)",
		took, e.Trip.Round(time.Millisecond), e.Timeout, raise)
}

// maxAdvice is the longest node_timeout to recommend: a tenth of the default ttl.
const maxAdvice = time.Second

// Seconds rounds a duration up, for messages.
func Seconds(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return (d + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond)
	}
	return (d + time.Second - 1).Truncate(time.Second)
}
