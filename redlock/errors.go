package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
)

var (
	// ErrHeld means that another client holds the lock. See HeldError.
	ErrHeld = errors.New("held")
	// ErrNoQuorum means that too few nodes could vote. See NoQuorumError.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost means that the lease was lost. From its stated deadline on, other clients may
	// hold the lock. See LostError.
	ErrLost = errors.New("lost")
	// ErrReleased means that the lease was released earlier.
	ErrReleased = errors.New("released already")
)

// HeldError names the holder of the lock, according to a quorum's refusals. It matches
// ErrHeld.
type HeldError struct {
	Name string
	// Blocked is the name that Holder has, if the request was for several names: the first one in the order of
	// their bytes. "": the request was for one name.
	Blocked string
	Holder  Holder
	// TTL is how long the holder's lease lasts unless it is extended. It is 0 if several
	// clients contend and none has won yet, and Endless if the key has no expiry.
	TTL time.Duration
	// Shared means that Holder is one of several readers.
	Shared bool
	// Waiting means that Holder does not hold the lock, but must not be overtaken. If
	// Shared, it waits for the readers. Otherwise it is its turn to take a free lock.
	Waiting bool
	// Slots is the number of slots if Holder has one of them; 0: the lock is not a
	// semaphore. Either all slots are taken, or the request was for another number of
	// slots.
	Slots int

	foreign  bool   // another Redlock client's lock: its release calls no waiter
	split    bool   // no attempt can have won yet
	freeSlot int    // a free slot; 0: not known
	blocked  int    // which of several names: see Ballot.FirstBlocked
	token    string // the holder's token; "": most nodes do not show the same token
}

func (e *HeldError) Error() string {
	name := cmp.Or(e.Blocked, e.Name)
	switch {
	case e.Waiting && !e.Holder.Known():
		return fmt.Sprintf("%s: kept for a client that waited for it and is next", name)
	case e.Waiting && !e.Shared:
		return fmt.Sprintf("%s: kept for %v, which waited for it and is next", name, e.Holder)
	case e.Waiting:
		return fmt.Sprintf("%s: shared by others; %v already waits until they end", name, e.Holder)
	case e.Shared && e.Holder.Known():
		return fmt.Sprintf("%s: shared by others, one of them %v", name, e.Holder)
	case e.Slots > 0 && e.Holder.Known():
		return fmt.Sprintf("%s: a semaphore of %d slots: all are taken, or you asked for another number; one is held by %v", name, e.Slots, e.Holder)
	case e.TTL == 0 && !e.Holder.Known():
		return fmt.Sprintf("%s: several clients ask for it, and none has a quorum yet", name)
	case !e.Holder.Known() && e.TTL == Endless:
		return fmt.Sprintf("%s: its key has no expiry, so no Redlock client set it: look at it on the nodes, and delete it there if nobody needs it", name)
	case !e.Holder.Known():
		return fmt.Sprintf("%s: held by another Redlock client, for at most %v", name, e.TTL)
	}
	return fmt.Sprintf("%s: held by %v", name, e.Holder)
}

func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NoQuorumError lists the nodes that could not vote, and why. It matches ErrNoQuorum, and
// everything that the nodes' errors match.
type NoQuorumError struct {
	Name    string // the lock
	Granted int    // nodes that granted
	Needed  int    // the size of a quorum
	Failed  []*NodeError
	Retry   time.Duration // when another attempt makes sense
	// Quarantine is the time until a quorum can vote, if only quarantines prevent that. Then
	// Retry has the same value. 0: there is another reason.
	Quarantine time.Duration
	// Sources means that nodes will still be excluded from voting after Quarantine, unless more
	// nodes come up: they must copy fencing counters from other nodes, of which too few may vote.
	Sources bool
}

func (e *NoQuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no quorum", e.Name)
	waiting, others := e.split()
	if len(others) > 0 {
		b.WriteString(": " + e.failedText())
	}
	for _, failure := range others {
		fmt.Fprintf(&b, "; %v", failure)
	}
	switch {
	case e.Quarantine > 0 && e.Sources:
		fmt.Fprintf(&b, "; no quorum can vote for another %v, and after that not until more nodes are up; nodes in quarantine (restarted or flushed, they may have forgotten locks that are still held, and then must copy fencing counters from other nodes, of which too few may vote): %s",
			node.Seconds(e.Quarantine), strings.Join(waiting, ", "))
	case e.Quarantine > 0:
		fmt.Fprintf(&b, "; a quorum can vote in %v; nodes in quarantine (new or restarted, they may have forgotten locks that are still held): %s",
			node.Seconds(e.Quarantine), strings.Join(waiting, ", "))
	}
	return b.String()
}

// failedText says how many nodes failed. Only a request for a grant gets grants.
func (e *NoQuorumError) failedText() string {
	nodes := fmt.Sprintf("%d nodes failed", len(e.Failed))
	if len(e.Failed) == 1 {
		nodes = "1 node failed"
	}
	if e.Granted == 0 || e.Failed[0].Op != "acquire" {
		return fmt.Sprintf("%s, and %d are needed", nodes, e.Needed)
	}
	return fmt.Sprintf("%s, and %d of the %d needed nodes granted", nodes, e.Granted, e.Needed)
}

// split returns the nodes that only need time, and the failures of the other nodes. It merges
// equal failures into one.
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

// OverdueError says why a lease was lost although not only the nodes are to blame: its extension
// came too late. Either this process was late to extend it (a process that adopts a lease may
// start late), or it waited too long for the nodes, including the wait for the grant. The error
// matches everything that Err matches.
type OverdueError struct {
	Name  string
	Took  time.Duration // how long the grant took, if it took so long that the extension was due before it; else 0
	Due   time.Duration // how long before the loss the extension was due
	Asked time.Duration // how long before the loss the first extension was sent; 0: none was sent
	Tries int           // failed extensions
	Err   error         // of the last failed extension; nil: none failed
}

func (e *OverdueError) Error() string {
	if e.Err == nil {
		return e.text()
	}
	return fmt.Sprintf("%s; the last of %d attempts: %v", e.text(), e.Tries, e.Err)
}

func (e *OverdueError) text() string {
	due, asked := e.Due.Round(time.Millisecond), e.Asked.Round(time.Millisecond)
	switch {
	case e.Took != 0:
		return fmt.Sprintf("%s: it was granted %v after the request, when its extension was already overdue: the nodes are too slow for so short a ttl, or the host is overloaded, or was stopped",
			e.Name, e.Took.Round(time.Millisecond))
	case e.Asked == 0:
		return fmt.Sprintf("%s: its extension was due %v ago, and this process has not sent it: the host is overloaded, or was stopped, or no redlockd ran", e.Name, due)
	}
	return fmt.Sprintf("%s: its extension was due %v ago, and this process sent it %v late: the host is overloaded, or was stopped, or no redlockd ran, or the nodes are too slow for their load",
		e.Name, due, due-asked)
}

func (e *OverdueError) Unwrap() error { return e.Err }

// agedError says why a lease was lost although no extension failed.
type agedError struct {
	name string
	by   time.Duration
}

func (e *agedError) Error() string {
	return fmt.Sprintf("%s: nodes' clocks moved by %v against this host's clock, and probably not those of one node alone, so the lease was aged by that time: this host was paused (a virtual machine that was suspended or moved), or nodes' clocks were stepped",
		e.name, e.by.Round(time.Millisecond))
}

// LostReason is one word for the reason of a loss.
type LostReason string

const (
	LostQuorum  LostReason = "quorum"  // a quorum did not extend the lease
	LostForced  LostReason = "forced"  // Quorum.Force revoked it: other clients may hold the lock at once
	LostMax     LostReason = "max"     // Request.Max was reached
	LostBeat    LostReason = "beat"    // the client stopped beating (Lease.Lose)
	LostExpired LostReason = "expired" // it was not kept, and its ttl has passed
)

// LostError gives the reason of a lost lease. It matches ErrLost.
type LostError struct {
	Name   string // the lock
	Reason LostReason
}

func (e *LostError) Error() string { return fmt.Sprintf("%s: %v (%s)", e.Name, ErrLost, e.Reason) }

func (e *LostError) Is(target error) bool { return target == ErrLost }
