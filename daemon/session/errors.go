package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

var (
	errAlready    = errors.New("already held or requested")
	errOwnerHolds = fmt.Errorf("%w by this owner on this connection", errAlready)
	errUnread     = fmt.Errorf("more than %d MiB of answers to this user's clients are unread, the maximum: read them, or close the connections", maxUnread>>20)
	errNotHeld    = errors.New("not held")
	errNoLease    = fmt.Errorf("%w: there is no lease with this id here (any more)", errNotHeld)
	errShortage   = errors.New("a limit of the system is reached")
	errOption     = errors.New("bad option")
	errVerb       = errors.New("no such verb")

	errLockUndone = fmt.Errorf("%w: the LOCK that it repeats has ended without a grant, or was unlocked since", server.ErrCancelled)
	errInputEnded = fmt.Errorf("%w: the client's input ended while it waited", server.ErrCancelled)

	errOutcomeUnknown = errors.New("the daemon was restarted while it was in progress, and its result is unknown")
)

// codes maps errors to the codes of the protocol. The first match counts.
var codes = []struct {
	err  error
	code ipc.Code
}{
	{redlock.ErrHeld, ipc.CodeHeld},
	{redlock.ErrNoQuorum, ipc.CodeNoQuorum},
	{server.ErrCancelled, ipc.CodeCancelled},
	{server.ErrGone, ipc.CodeCancelled},
	{server.ErrLate, ipc.CodeCancelled},
	{server.ErrShutdown, ipc.CodeShutdown},
	{redlock.ErrClosed, ipc.CodeShutdown},
	{errOutcomeUnknown, ipc.CodeUnknown},
	{redlock.ErrLost, ipc.CodeLost},
	{redlock.ErrReleased, ipc.CodeNotHeld},
	{errNotHeld, ipc.CodeNotHeld},
	{errAlready, ipc.CodeAlready},
	{locktable.ErrDeadlock, ipc.CodeDeadlock},
	{locktable.ErrLimit, ipc.CodeLimit},
	{errShortage, ipc.CodeLimit},
	{locktable.ErrTooManyCounts, ipc.CodeLimit},
	{errUnread, ipc.CodeLimit},
	{access.ErrDenied, ipc.CodeDenied},
	{redlock.ErrNotQuarantined, ipc.CodeOption},
	{redlock.ErrNotAdmitted, ipc.CodeNoQuorum},
	{redlock.ErrChange, ipc.CodeOption},
	{context.DeadlineExceeded, ipc.CodeNoQuorum},
	{errOption, ipc.CodeOption},
	{redlock.ErrRequest, ipc.CodeOption},
	{redlock.ErrCursor, ipc.CodeOption},
	{redlock.ErrScanDenied, ipc.CodeDenied},
	{errVerb, ipc.CodeVerb},
}

func codeOf(err error) ipc.Code {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return ipc.CodeInternal
}

// notHeldByPIDError is the error if a process has no such lease of this user and owner.
func notHeldByPIDError(call *server.Call) error {
	who := "this user"
	if call.Owner != "" {
		who += " and owner"
	}
	if len(call.Names) == 0 {
		return fmt.Errorf("%w: process %d has no lock of %s", errNotHeld, call.PID, who)
	}
	return fmt.Errorf("%s: %w by process %d for %s", strings.Join(call.Names, ","), errNotHeld, call.PID, who)
}

// unknownIDError is the error for an unknown lease=. It names no other lease: ids are secret.
func unknownIDError(names []string) error {
	if len(names) == 0 {
		return errNoLease
	}
	return fmt.Errorf("%s: %w: no lease of it with this id is here: lease= is wrong, or the lease has ended, or it was taken through another daemon",
		strings.Join(names, ","), errNotHeld)
}

// badOption returns an error that matches errOption. Its text does not say so: the code does.
func badOption(format string, args ...any) error {
	return &optionError{fmt.Errorf(format, args...)}
}

type optionError struct{ error }

func (e *optionError) Is(target error) bool { return target == errOption }

func (e *optionError) Unwrap() error { return e.error }

func reply(call *server.Call, response *ipc.Response) server.Work {
	call.Reply(response)
	return nil
}

// responseOf returns the answer for an error: the code and fields for programs, the text for
// people.
func responseOf(call *server.Call, err error) *ipc.Response {
	r := call.Err(codeOf(err), err.Error())
	var held *redlock.HeldError
	var noQuorum *redlock.NoQuorumError
	var lost *redlock.LostError
	var drain *drainError
	if len(call.Names) > 0 { // else the client named the lock by lease= or pid=
		r.Strs("lock", call.Names...)
	}
	switch {
	case errors.As(err, &held):
		heldFields(r, held)
	case errors.As(err, &noQuorum):
		failed := make([]string, len(noQuorum.Failed))
		for i, failure := range noQuorum.Failed {
			failed[i] = failure.Node + ":" + string(failure.Failure)
		}
		r.Int("granted", int64(noQuorum.Granted)).Int("needed", int64(noQuorum.Needed)).
			Strs("failed", failed...).Ms("retry", noQuorum.Retry)
		r.Text = strings.Replace(r.Text, noQuorum.Error(), noQuorumText(noQuorum), 1)
	case errors.As(err, &drain):
		r.Ms("drain", drain.left)
	case errors.As(err, &lost):
		r.Str("reason", string(lost.Reason))
	}
	return r
}

// heldFields adds which of several names is held, and how, if not exclusively.
func heldFields(r *ipc.Response, e *redlock.HeldError) {
	if e.Blocked != "" {
		r.Str("blocked", e.Blocked)
	}
	if e.Shared {
		r.Str("mode", ipc.Shared.String())
	}
	waitingField(slotsField(r, e.Slots), e.Waiting)
	ttlField(r, e.TTL)
	holderFields(r, e.Holder)
}

// slotsField adds the number of slots, if the lock has slots.
func slotsField(r *ipc.Response, slots int) *ipc.Response {
	if slots > 0 {
		r.Int("slots", int64(slots))
	}
	return r
}

// waitingField adds waiting=yes if the client in the answer waits, and does not hold the lock.
func waitingField(r *ipc.Response, waits bool) *ipc.Response {
	if waits {
		r.Str("waiting", "yes")
	}
	return r
}

func slotField(r *ipc.Response, slot int) *ipc.Response {
	if slot > 0 {
		r.Int("slot", int64(slot))
	}
	return r
}

// ttlField adds the ttl, if it is known and limited.
func ttlField(r *ipc.Response, ttl time.Duration) *ipc.Response {
	if ttl > 0 && ttl != redlock.Endless {
		r.Ms("ttl", ttl)
	}
	return r
}

// holderFields adds the known facts about the holder.
func holderFields(r *ipc.Response, h redlock.Holder) {
	if !h.Known() {
		return
	}
	pidField(r.Str("host", h.Host), h.PID).Str("user", h.User).Ms("since", max(time.Since(h.Since), 0))
}

// pidField adds the pid, unless the daemon cannot see the process.
func pidField(r *ipc.Response, pid int) *ipc.Response {
	if pid != 0 {
		r.Int("pid", int64(pid))
	}
	return r
}

// noQuorumText returns the text of e. If a node rejects the daemon's login, the text says what to
// do in redlockd.hcl, as STATUS does, instead of quoting Redis.
func noQuorumText(e *redlock.NoQuorumError) string {
	told := *e
	told.Failed = slices.Clone(e.Failed)
	for i, failure := range told.Failed {
		if text := loginText(failure.Err); text != "" {
			told.Failed[i] = &redlock.NodeError{Node: failure.Node, Op: failure.Op, Failure: failure.Failure, Err: errors.New(text)}
		}
	}
	return told.Error()
}

// maxUnread is how many bytes of answers the clients of one user may leave unread before
// another long answer is refused.
const maxUnread = 32 << 20

// loginText returns what to do if a node rejects the daemon's login; "" for any other error.
func loginText(reason error) string {
	e, _ := errors.AsType[redlock.ServerError](reason)
	kind, _, _ := strings.Cut(string(e), " ")
	return loginTexts[kind]
}

var loginTexts = map[string]string{
	"NOAUTH":    "it requires a password (NOAUTH), and got none: set password_file of this node in redlockd.hcl",
	"WRONGPASS": "the user does not exist there, has another password, or is off (WRONGPASS): see username and password_file of this node in redlockd.hcl, and ACL LIST on the node",
}

// minBeat is the shortest beat=. On a busy host, timers are not more precise.
const minBeat = redlock.MinTTL

// nodesError returns err if the next waiter will get the same error from the nodes. It returns nil
// if the request ended for a reason of its own.
func nodesError(err error) error {
	if errors.Is(err, redlock.ErrHeld) || errors.Is(err, redlock.ErrNoQuorum) {
		return err
	}
	return nil
}

// behindError is a HeldError for a lock that no client of this host holds, but that an earlier
// client waits for.
type behindError struct {
	*redlock.HeldError        // its Holder is the earlier client
	reason             string // why that client does not have the lock yet
}

func (e *behindError) Error() string {
	return fmt.Sprintf("%s: %v asked earlier, %s", cmp.Or(e.Blocked, e.Name), e.Holder, e.reason)
}

func (e *behindError) Unwrap() error { return e.HeldError }

// renameError returns an error that another waiter of this host got from the nodes, with the names
// of w. The client may not be allowed to see the names of the other request.
func renameError(view access.View, err error, w *locktable.Waiter) error {
	if held, ok := errors.AsType[*redlock.HeldError](err); ok && view.Rules != nil {
		own := *held
		own.Name = w.Label()
		if !slices.Contains(w.Names, own.Blocked) {
			own.Blocked = ""
		}
		return &own
	}
	if none, ok := errors.AsType[*redlock.NoQuorumError](err); ok && view.Rules != nil {
		own := *none
		own.Name = w.Label()
		return &own
	}
	return err
}

// redact replaces the names in a deadlock error that the client may not see.
func redact(view access.View, err error) error {
	deadlock, ok := errors.AsType[*locktable.DeadlockError](err)
	if !ok || view.Rules == nil {
		return err
	}
	cycle := slices.Clone(deadlock.Cycle)
	for i := range cycle {
		cycle[i].Name = view.Name(cycle[i].Name)
	}
	return &locktable.DeadlockError{Cycle: cycle}
}

// drainError refuses a LOCK of a daemon that drains.
type drainError struct {
	left time.Duration // until the daemon stops at the latest
}

func (e *drainError) Error() string {
	return fmt.Sprintf("redlockd is stopping: it waits up to %v for held locks, and grants no new ones", Seconds(e.left))
}

func (e *drainError) Is(target error) bool { return target == server.ErrShutdown }
