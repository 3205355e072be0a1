package locktable

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Requester identifies a client that asked for a lock, and has what LIST and WHO show of it.
type Requester struct {
	UID, PID int
	User     string
	Owner    string // owner=, on the connection
	Note     string
	ID       string        // id=
	Asked    time.Duration // BootTime of the request
}

// String describes the client for people.
func (r *Requester) String() string {
	var more []string
	if r.PID != 0 { // 0: the process is not visible, for example in another container
		more = append(more, fmt.Sprintf("pid %d", r.PID))
	}
	if r.Owner != "" {
		more = append(more, "owner "+r.Owner)
	}
	if more == nil {
		return r.User
	}
	return fmt.Sprintf("%s (%s)", r.User, strings.Join(more, ", "))
}

// Owner is the unit that can hold and wait: one owner= of one client, which is a
// connection or, with hold=pid, a process.
type Owner struct {
	Client any // comparable
	Name   string
}

// A Waiter is one request in the queues of its names, from its arrival until it failed or
// its lease ended.
type Waiter struct {
	Names     []string
	oneName   [1]string // the memory of names if there is one
	Requester *Requester
	Owner     Owner // ChangeOwner changes it

	number uint64 // in the order of arrival

	ready, nextInLine chan struct{} // see Ready and NextInLine

	backing     Backing                 // does not change
	attempt     *redlock.PendingAttempt // begun for it by a hand-over, and not taken yet
	streak      Streak                  // its lease continues it
	participant *participant            // nil while it neither waits nor is waited for
	failure     error                   // of its last attempt on the nodes, or of the one before it in the queue
	Kind        Kind                    // the requested mode; does not change
	Patient     bool                    // it waits if it is not ready at once; does not change
	isReady     bool
	grant       grantState
	isKept      bool // see ChangeOwner
}

// init sets the fields that do not change. It copies names.
func (w *Waiter) init(names []string, kind Kind, patient bool, requester *Requester, backing Backing) {
	if len(names) == 1 {
		w.oneName[0] = names[0]
		w.Names = w.oneName[:]
	} else {
		w.Names = slices.Clone(names)
	}
	w.Kind, w.Patient, w.Requester, w.backing = kind, patient, requester, backing
}

// grantState is whether a Waiter was granted its lock.
type grantState uint8

const (
	notGranted grantState = iota
	isGranted
	isShared    // it was granted exclusively, and the holder made it shared
	isWithdrawn // see Withdraw
)

func (w *Waiter) isGranted() bool { return w.grant == isGranted || w.grant == isShared }

// mode returns how w holds its lock, or wants to.
func (w *Waiter) mode() Kind {
	if w.grant == isShared {
		return Kind{Shared: true}
	}
	return w.Kind
}

// Label returns the names for people.
func (w *Waiter) Label() string {
	if len(w.Names) == 1 {
		return w.Names[0]
	}
	return strings.Join(w.Names, ",")
}

// Ready is closed when nothing on this host blocks w. It is nil if nothing did when w joined.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// NextInLine is closed when only holders of a shared lock block w. It is nil if w was ready
// when it joined, or is not exclusive.
func (w *Waiter) NextInLine() <-chan struct{} { return w.nextInLine }

// Request makes the request of w to the nodes; w must have been claimed.
func (w *Waiter) Request() redlock.Request { return w.backing.Request() }

// Undelivered tells a claimed waiter that it had left when its attempt was begun, which the
// caller has abandoned.
func (w *Waiter) Undelivered() { w.backing.Undelivered() }

// isBlocked reports whether w waits for others of this host, and not only for the nodes.
func (w *Waiter) isBlocked() bool { return w.Patient && !w.isReady }
