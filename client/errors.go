package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redlockd/redlockd/ipc"
)

// The errors of this package match these sentinels, with errors.Is.
var (
	// ErrHeld means that another holder kept the lock for the whole wait.
	ErrHeld = errors.New("held by somebody else")
	// ErrNoQuorum means that too few nodes could vote. It does not tell whether the lock is held.
	ErrNoQuorum = errors.New("no quorum of nodes")
	// ErrLost means that the lease ended without Unlock. From its deadline on, other clients can
	// hold the lock. A lost lease never becomes valid again.
	ErrLost = errors.New("lease lost")
	// ErrNotHeld means that the lease was already unlocked, or that the daemon does not know it.
	ErrNotHeld = errors.New("not held")
	// ErrUnlocked is the cause of the end of a Lease's context after Unlock.
	ErrUnlocked = errors.New("unlocked")
	// ErrDeadlock means that waiting would have closed a cycle of waiters on this host, or that a Lock got
	// the context of a lease that has the lock.
	ErrDeadlock = errors.New("deadlock")
	// ErrCancelled means that the process that was to hold the lock (WithPID) ended during the wait.
	ErrCancelled = errors.New("cancelled")
	// ErrDenied means that this user lacks the permission.
	ErrDenied = errors.New("not allowed")
	// ErrLimit means that a limit of the daemon's config is reached.
	ErrLimit = errors.New("limit reached")
	// ErrInvalid means that a name or an option is not valid, or out of bounds.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknown means that the daemon stopped or restarted while Force or Admit was in progress.
	// Call Who or Status before you repeat it: the lock may have another holder by now.
	ErrUnknown = errors.New("its result is unknown")
	// ErrShutdown means that the daemon is stopping, and no other one has started. If it drains
	// (drain in its config), it grants no new locks, and the client keeps the leases that it has.
	ErrShutdown = errors.New("redlockd is stopping")
	// ErrInternal means a defect in the daemon. See its log.
	ErrInternal = errors.New("internal error of redlockd")
	// ErrUnavailable means that there is no daemon, and none came while the call waited (see Dial),
	// or that the daemon reads no more requests.
	ErrUnavailable = errors.New("redlockd is not available")
	// ErrClosed means that Close was called on this Client.
	ErrClosed = errors.New("client closed")
)

// sentinels maps the codes of the protocol to errors.
var sentinels = map[ipc.Code]error{
	ipc.CodeSyntax:    ErrInvalid,
	ipc.CodeVerb:      ErrInvalid,
	ipc.CodeName:      ErrInvalid,
	ipc.CodeOption:    ErrInvalid,
	ipc.CodeTooLong:   ErrInvalid,
	ipc.CodeHeld:      ErrHeld,
	ipc.CodeNoQuorum:  ErrNoQuorum,
	ipc.CodeCancelled: ErrCancelled,
	ipc.CodeNotHeld:   ErrNotHeld,
	ipc.CodeLost:      ErrLost,
	ipc.CodeAlready:   ErrHeld,
	ipc.CodeDeadlock:  ErrDeadlock,
	ipc.CodeDenied:    ErrDenied,
	ipc.CodeLimit:     ErrLimit,
	ipc.CodeShutdown:  ErrShutdown,
	ipc.CodeUnknown:   ErrUnknown,
	ipc.CodeInternal:  ErrInternal,
}

// Error is a refusal by the daemon, or the loss of a lease.
type Error struct {
	Op   string // "lock", "unlock", "check", …; "lease" for a loss
	Name string // the lock; "": none
	Code string // of the protocol: "HELD", "NOQUORUM", …
	Text string // for people
	// Holder is the holder of the lock, or one of several that share it, if Code is HELD and the
	// daemon knows it.
	Holder *Holder
	// Fields holds all fields of the daemon's answer, by their names in the protocol. Numbers are
	// decimal, and durations are in milliseconds.
	Fields map[string]string
	// Err is the cause, or nil: the end of the connection for a lost lease, or
	// context.DeadlineExceeded if the context's deadline bounded the wait.
	Err error
}

// Error returns the operation, the lock and the reason.
func (e *Error) Error() string {
	reason := strings.TrimPrefix(e.reason(), e.Name+": ") // the daemon's text repeats the name
	words := codeWords[ipc.Code(e.Code)]
	said := words != "" && strings.Contains(strings.ToLower(reason), words) || e.Code == string(ipc.CodeOption) // a text always names the option
	if e.Code != "" && !said {
		reason = e.Code + ": " + reason
	}
	return subject(e.Op, e.Name) + ": " + reason
}

// codeWords are words in the texts of the daemon and of this package that say what the code means.
// The texts of the other codes never say it.
var codeWords = map[ipc.Code]string{
	ipc.CodeHeld:      "held",
	ipc.CodeNoQuorum:  "no quorum",
	ipc.CodeCancelled: "cancelled",
	ipc.CodeNotHeld:   "not held",
	ipc.CodeLost:      "lost",
	ipc.CodeAlready:   "already",
	ipc.CodeDeadlock:  "deadlock",
	ipc.CodeDenied:    "not allowed",
	ipc.CodeLimit:     "limit",
	ipc.CodeShutdown:  "stopping",
	ipc.CodeInternal:  "internal",
}

func (e *Error) reason() string {
	switch sentinel := sentinels[ipc.Code(e.Code)]; {
	case e.Text != "":
		return e.Text
	case e.Err != nil:
		return e.Err.Error()
	case sentinel != nil:
		return sentinel.Error()
	}
	return "refused by redlockd"
}

// Is reports whether target is the sentinel of the error's code.
func (e *Error) Is(target error) bool {
	sentinel := sentinels[ipc.Code(e.Code)]
	return sentinel != nil && sentinel == target
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// subject names what failed: `lock "nightly-backup"`.
func subject(op, name string) string {
	if name == "" {
		return op
	}
	return fmt.Sprintf("%s %q", op, name)
}

// refusalError returns the error of an ERR reply.
func refusalError(op, name string, r *ipc.Response) *Error {
	e := &Error{Op: op, Name: name, Code: string(r.Code), Text: r.Text, Fields: fields(r)}
	if r.Code == ipc.CodeHeld && e.Fields["host"]+e.Fields["pid"]+e.Fields["user"] != "" {
		holder := holderOf(r)
		holder.Mode = cmp.Or(holder.Mode, "exclusive") // HELD says mode=shared only
		e.Holder = &holder
	}
	return e
}

// fields returns all fields of a reply as text.
func fields(r *ipc.Response) map[string]string {
	all := make(map[string]string, len(r.Fields))
	for _, f := range r.Fields {
		all[f.Key] = f.String()
	}
	return all
}

// lostError returns the cause with which a lease's context ends.
func lostError(name, text string, err error) *Error {
	return &Error{Op: "lease", Name: name, Code: string(ipc.CodeLost), Text: text, Err: err}
}

// lostReasons explains the reasons of LOST.
var lostReasons = map[string]string{
	"quorum":  "it could not be extended on a quorum of nodes",
	"forced":  "it was revoked with FORCE: others may already hold it",
	"max":     "its maximum holding time has passed",
	"beat":    "no BEAT came in time",
	"expired": "its ttl has passed",
}

// lostByEvent returns the cause that a LOST event gives.
func lostByEvent(name string, event *ipc.Response) *Error {
	reason := text(event, "reason")
	e := lostError(name, cmp.Or(event.Text, lostReasons[reason], "reason "+reason), nil)
	e.Fields = fields(event)
	return e
}

// contextError returns the error of a call whose context was done before the answer came.
func contextError(op, name string, ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%s: gave up waiting: %w", subject(op, name), cause)
	}
	return fmt.Errorf("%s: gave up waiting: %w (%w)", subject(op, name), err, cause)
}

// callError returns the error of a call that got no answer.
func callError(op, name string, err error) error {
	return fmt.Errorf("%s: %w", subject(op, name), err)
}

// invalidError returns the error of a request that is rejected before it is sent.
func invalidError(op, name string, code ipc.Code, text string) *Error {
	return &Error{Op: op, Name: name, Code: string(code), Text: text}
}

// notHeldError returns the error of a request about a lease that was already unlocked.
func notHeldError(verb ipc.Verb, name string) *Error {
	return &Error{Op: op(verb), Name: name, Code: string(ipc.CodeNotHeld), Text: "it is already unlocked"}
}

// op returns the name of a verb in errors.
func op(verb ipc.Verb) string { return strings.ToLower(verb.String()) }
