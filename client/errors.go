package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redlockd/redlockd/ipc"
)

// What an error of this package matches, with errors.Is.
var (
	// ErrHeld: somebody else held the lock for as long as was to be waited.
	ErrHeld = errors.New("held by somebody else")
	// ErrNoQuorum: too few nodes could vote. It says nothing about who holds the lock.
	ErrNoQuorum = errors.New("no quorum of nodes")
	// ErrLost: the lease is over, and not by Unlock. Others can hold the lock
	// from its deadline on. It never comes back.
	ErrLost = errors.New("lease lost")
	// ErrNotHeld: the lease was unlocked before, or the daemon does not know it.
	ErrNotHeld = errors.New("not held")
	// ErrUnlocked is the cause of the end of a Lease's context after Unlock.
	ErrUnlocked = errors.New("unlocked")
	// ErrDeadlock: waiting would have closed a cycle of waiters on this host.
	ErrDeadlock = errors.New("deadlock")
	// ErrCancelled: the process that was to hold the lock (WithPID) ended while it was waited for.
	ErrCancelled = errors.New("cancelled")
	// ErrDenied: this user may not do that.
	ErrDenied = errors.New("not allowed")
	// ErrLimit: a limit of the daemon's config is reached.
	ErrLimit = errors.New("limit reached")
	// ErrInvalid: a name or an option that cannot be, or is out of bounds.
	ErrInvalid = errors.New("invalid request")
	// ErrShutdown: the daemon is stopping, and no other one came. Of Force and Admit
	// also: it stopped, or was restarted, and whether they were done is not known.
	ErrShutdown = errors.New("redlockd is stopping")
	// ErrInternal: a defect in the daemon; its log has more.
	ErrInternal = errors.New("internal error of redlockd")
	// ErrUnavailable: there is no daemon, and none came for as long as the call
	// waits (see Dial), or it reads no more.
	ErrUnavailable = errors.New("redlockd is not available")
	// ErrClosed: Close was called on this Client.
	ErrClosed = errors.New("client closed")
)

// sentinels are what the codes of the protocol match.
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
	ipc.CodeInternal:  ErrInternal,
}

// Error is a refusal by the daemon, or the loss of a lease.
type Error struct {
	Op   string // "lock", "unlock", "check", …; "lease" for a loss
	Name string // the lock; "" where there is none
	Code string // of the protocol: "HELD", "NOQUORUM", …
	Text string // for people
	// Holder is who holds the lock, or one of those who share it, where Code is HELD
	// and the daemon knows.
	Holder *Holder
	// Fields is all that the daemon said beside, by its names in the protocol;
	// numbers in decimal, durations in milliseconds.
	Fields map[string]string
	// Err is what led to it, or nil: the end of the connection for a lost lease,
	// context.DeadlineExceeded where the context's deadline bounded the wait.
	Err error
}

// Error is what was tried, on which lock, and why not.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(subject(e.Op, e.Name))
	b.WriteString(": ")
	if e.Code != "" {
		b.WriteString(e.Code + ": ")
	}
	b.WriteString(e.reason())
	return b.String()
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

// Unwrap is what led to the error.
func (e *Error) Unwrap() error { return e.Err }

// subject names what failed: `lock "nightly-backup"`.
func subject(op, name string) string {
	if name == "" {
		return op
	}
	return fmt.Sprintf("%s %q", op, name)
}

// refusal is the error of an ERR reply.
func refusalError(op, name string, r *ipc.Response) *Error {
	e := &Error{Op: op, Name: name, Code: string(r.Code), Text: r.Text, Fields: fields(r)}
	if r.Code == ipc.CodeHeld && e.Fields["host"]+e.Fields["pid"]+e.Fields["user"] != "" {
		holder := holderOf(r)
		holder.Mode = cmp.Or(holder.Mode, "exclusive") // HELD says the other one only
		e.Holder = &holder
	}
	return e
}

// fields are all fields of a reply as text.
func fields(r *ipc.Response) map[string]string {
	all := make(map[string]string, len(r.Fields))
	for _, f := range r.Fields {
		all[f.Key] = f.String()
	}
	return all
}

// lost is the cause with which a lease's context ends.
func lostError(name, text string, err error) *Error {
	return &Error{Op: "lease", Name: name, Code: string(ipc.CodeLost), Text: text, Err: err}
}

// lostReasons are the reasons of LOST in words.
var lostReasons = map[string]string{
	"quorum":  "it could not be extended on a quorum of nodes",
	"forced":  "somebody deleted it by force: others may hold it already",
	"max":     "its longest holding time is over",
	"beat":    "no BEAT came in time",
	"expired": "its time is over",
}

// lostBy is the cause that a LOST event tells.
func lostByEvent(name string, event *ipc.Response) *Error {
	reason := text(event, "reason")
	e := lostError(name, cmp.Or(event.Text, lostReasons[reason], "reason "+reason), nil)
	e.Fields = fields(event)
	return e
}

// ended is the error of a call whose context was done before the answer came.
func contextError(op, name string, ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%s: gave up waiting: %w", subject(op, name), cause)
	}
	return fmt.Errorf("%s: gave up waiting: %w (%w)", subject(op, name), err, cause)
}

// failed is the error of a call that got no answer.
func callError(op, name string, err error) error {
	return fmt.Errorf("%s: %w", subject(op, name), err)
}

// invalid is the error of a request that is refused before it is sent.
func invalidError(op, name string, code ipc.Code, text string) *Error {
	return &Error{Op: op, Name: name, Code: string(code), Text: text}
}

// notHeld is the error of a request about a lease that was unlocked before.
func notHeldError(verb ipc.Verb, name string) *Error {
	return &Error{Op: op(verb), Name: name, Code: string(ipc.CodeNotHeld), Text: "it was unlocked before"}
}

// op is what a verb is called in errors.
func op(verb ipc.Verb) string { return strings.ToLower(verb.String()) }
