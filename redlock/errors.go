package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
)

var (
	// ErrHeld: somebody else holds the lock. See HeldError.
	ErrHeld = errors.New("held")
	// ErrNoQuorum: too few nodes could vote. See NoQuorumError.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost: the lease is over, and other holders are possible from its stated
	// deadline on. See LostError.
	ErrLost = errors.New("lost")
	// ErrReleased: the lease was released before.
	ErrReleased = errors.New("released already")
)

// HeldError says who holds the lock, as a quorum's refusals told. It matches
// ErrHeld.
type HeldError struct {
	Name   string
	Holder Holder
	// TTL is how long the holder's lease lasts unless it is extended; 0 where
	// several contended and nobody had won yet; Endless where it has no end.
	TTL time.Duration
	// Shared: Holder is one of several who share it.
	Shared bool
	// Waiting: Holder does not hold it, but must not be overtaken: it waits for the
	// readers, if Shared; or it was overtaken again and again, and has a reservation.
	Waiting bool
	// Slots is how many places there are, all taken or not the number that was asked
	// for, where Holder has one of them; 0: it is no semaphore.
	Slots int

	foreign bool   // another client's, who rings no bell
	split   bool   // nobody can have won
	free    int    // a place that is not taken
	token   string // of who holds it; "": it is not one and the same on most nodes
}

func (e *HeldError) Error() string {
	switch {
	case e.Waiting && !e.Holder.Known():
		return fmt.Sprintf("%s: others have waited for it, and are next", e.Name)
	case e.Waiting && !e.Shared:
		return fmt.Sprintf("%s: kept for %v, who has waited for it and is next", e.Name, e.Holder)
	case e.Waiting:
		return fmt.Sprintf("%s: shared by others, for whose end %v waits already", e.Name, e.Holder)
	case e.Shared && e.Holder.Known():
		return fmt.Sprintf("%s: shared by others, one of them %v", e.Name, e.Holder)
	case e.Slots > 0 && e.Holder.Known():
		return fmt.Sprintf("%s: a semaphore of %d places, all taken, or another number was asked for; one is held by %v", e.Name, e.Slots, e.Holder)
	case e.TTL == 0 && !e.Holder.Known():
		return fmt.Sprintf("%s: several contend for it and none has won yet", e.Name)
	case !e.Holder.Known() && e.TTL == Endless:
		return fmt.Sprintf("%s: its key was set without an expiry by no Redlock client: look at it on the nodes, and delete it there if nobody needs it", e.Name)
	case !e.Holder.Known():
		return fmt.Sprintf("%s: held by another Redlock client, for at most %v", e.Name, e.TTL)
	}
	return fmt.Sprintf("%s: held by %v", e.Name, e.Holder)
}

func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NoQuorumError says which nodes could not vote, and why. It matches
// ErrNoQuorum, and what the nodes' errors match.
type NoQuorumError struct {
	Name    string // the lock
	Granted int    // nodes that answered as was wished
	Needed  int    // a quorum
	Failed  []*NodeError
	Retry   time.Duration // when another attempt makes sense
	// Quarantine is how long it takes until a quorum can vote where quarantines
	// are all that is in the way: Retry is the same then. 0: something else is.
	Quarantine time.Duration
	// Sources: after Quarantine nodes still have no vote, as it is now: they are to copy
	// fencing counters from others, of which too few may vote.
	Sources bool
}

func (e *NoQuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no quorum: %d nodes failed, and %d granted of the %d that are needed", e.Name, len(e.Failed), e.Granted, e.Needed)
	waiting, others := e.split()
	for _, failure := range others {
		fmt.Fprintf(&b, "; %v", failure)
	}
	switch {
	case e.Quarantine > 0 && e.Sources:
		fmt.Fprintf(&b, "; no quorum can vote for another %v, and then not before more nodes are up: in quarantine are %s, which were restarted or flushed, may have forgotten locks that are still held, and copy fencing counters from others then, of which too few may vote",
			node.Seconds(e.Quarantine), strings.Join(waiting, ", "))
	case e.Quarantine > 0:
		fmt.Fprintf(&b, "; a quorum can vote in %v: in quarantine are %s, which are new or were restarted, and may have forgotten locks that are still held",
			node.Seconds(e.Quarantine), strings.Join(waiting, ", "))
	}
	return b.String()
}

// split is which nodes are waited for alone, and what is wrong with the others: those
// that say the same are one.
func (e *NoQuorumError) split() (waiting []string, others []*NodeError) {
	said := map[string]*NodeError{}
	for _, failure := range e.Failed {
		if failure.Failure == FailedQuarantined && e.Quarantine > 0 {
			waiting = append(waiting, failure.Node)
			continue
		}
		same := said[failure.What()]
		if same == nil {
			same = &NodeError{Op: failure.Op, Failure: failure.Failure, Err: failure.Err}
			said[failure.What()] = same
			others = append(others, same)
		} else {
			same.Node += ", "
		}
		same.Node += failure.Node
	}
	return waiting, others
}

func (e *NoQuorumError) Is(target error) bool { return target == ErrNoQuorum }

func (e *NoQuorumError) Unwrap() []error {
	causes := make([]error, len(e.Failed))
	for i, failure := range e.Failed {
		causes[i] = failure
	}
	return causes
}

// OverdueError is why a lease was lost whose extension came too late: not for want of
// nodes alone, but because this process had not come to it (one that adopted the lease may
// not have run yet), or had to wait for them for long, be it for the grant. It matches
// what Err matches.
type OverdueError struct {
	Name  string
	Took  time.Duration // the grant, where its extension was due before that came; 0: it was not
	Due   time.Duration // before the loss: when its extension was due
	Asked time.Duration // before the loss: when the nodes were first asked; 0: they were not
	Tries int           // that failed
	Err   error         // of the last of them; nil: none did
}

func (e *OverdueError) Error() string {
	if e.Err == nil {
		return e.text()
	}
	return fmt.Sprintf("%s; the last of %d tries: %v", e.text(), e.Tries, e.Err)
}

func (e *OverdueError) text() string {
	due, asked := e.Due.Round(time.Millisecond), e.Asked.Round(time.Millisecond)
	switch {
	case e.Took != 0:
		return fmt.Sprintf("%s: it was granted %v after it was asked for, when its extension was overdue: its nodes are too slow for so short a ttl, or the host is overloaded, or was stopped",
			e.Name, e.Took.Round(time.Millisecond))
	case e.Asked == 0:
		return fmt.Sprintf("%s: its extension was due %v before, and this process has not come to it: the host is overloaded, or was stopped, or no redlockd ran", e.Name, due)
	}
	return fmt.Sprintf("%s: its extension was due %v before, and this process came to it %v late: the host is overloaded, or was stopped, or no redlockd ran, or its nodes are too slow for what they are asked",
		e.Name, due, due-asked)
}

func (e *OverdueError) Unwrap() error { return e.Err }

// agedError is why a lease was lost of which no extension failed.
type agedError struct {
	name string
	by   time.Duration
}

func (e *agedError) Error() string {
	return fmt.Sprintf("%s: nodes' clocks moved by %v against this host's, and not one node's alone for certain, so it counts as so much older: this host was paused (a virtual machine that was suspended or moved), or nodes' clocks were stepped",
		e.name, e.by.Round(time.Millisecond))
}

// LostReason is one word for how a lease was lost.
type LostReason string

const (
	LostQuorum  LostReason = "quorum"  // it could not be extended on a quorum
	LostForced  LostReason = "forced"  // somebody took it away (Quorum.Force): others may hold it at once
	LostMax     LostReason = "max"     // Request.Max was reached
	LostBeat    LostReason = "beat"    // its holder gave no sign of life (Lease.Lose)
	LostExpired LostReason = "expired" // it was not to be kept, and its ttl is over
)

// LostError says how a lease was lost. It matches ErrLost.
type LostError struct {
	Name   string // the lock
	Reason LostReason
}

func (e *LostError) Error() string { return fmt.Sprintf("%s: %v (%s)", e.Name, ErrLost, e.Reason) }

func (e *LostError) Is(target error) bool { return target == ErrLost }
