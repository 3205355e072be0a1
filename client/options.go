package client

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Option is an option of Lock, TryLock, LockAll, TryLockAll and Do. An option that does not apply
// is never ignored: the error matches ErrInvalid. Durations are rounded up to whole milliseconds.
type Option func(*call)

// WithTTL sets the lease time: how soon other clients get the lock if this host dies. The daemon
// accepts 100 ms up to its max_ttl. Default: the daemon's config.
func WithTTL(ttl time.Duration) Option {
	return func(cl *call) { cl.duration(&cl.req.TTL, ipc.OptTTL, "ttl", ttl, 1) }
}

// WithWait bounds the wait for the lock. 0 means not to wait. Default: until the context is done.
// TryLock does not wait, and rejects this option.
func WithWait(wait time.Duration) Option {
	return func(cl *call) {
		cl.duration(&cl.req.Wait, ipc.OptWait, "wait", wait, 0)
		if cl.req.Verb == ipc.VerbTry {
			cl.addBadOption("TryLock takes no WithWait")
		}
	}
}

// WithShared takes the lock as a reader, together with other readers and without a writer. A lock
// without this option is a writer's. A reader does not overtake a waiting writer.
func WithShared() Option {
	return func(cl *call) {
		cl.req.Mode = ipc.Shared
		cl.req.Set |= ipc.OptMode
	}
}

// WithSlots takes one of that many slots of the lock (a semaphore), at most 1,000. Lease.Slot
// returns its number. All clients must use the same number of slots. It works with one name only.
func WithSlots(slots int) Option {
	return func(cl *call) {
		cl.req.Slots = slots
		cl.req.Set |= ipc.OptSlots
		if slots < 1 {
			cl.addBadOption(strconv.Itoa(slots) + " slots: must be at least 1")
		}
	}
}

// WithMax bounds the total holding time: after it the lease is lost, even if it could be extended.
// Default: the daemon's max_hold.
func WithMax(most time.Duration) Option {
	return func(cl *call) { cl.duration(&cl.req.Max, ipc.OptMax, "max", most, 1) }
}

// WithMin keeps the lock taken for that long from the grant on, even if the holder calls Unlock or
// ends earlier. Use it for work that may be done on this host before another host has begun it. The
// bound on the holding time (WithMax, or the daemon's max_hold) bounds it as well. The daemon
// refuses it with HoldTTL and with WithBeat.
func WithMin(least time.Duration) Option {
	return func(cl *call) { cl.duration(&cl.req.Min, ipc.OptMin, "min", least, 0) }
}

// WithGuard sets how long before its deadline a lease ends if it could not be extended. The work
// under the lock has this time to stop. Default: a fifth of the ttl, or of the bound on the holding
// time if that is shorter.
func WithGuard(guard time.Duration) Option {
	return func(cl *call) { cl.duration(&cl.req.Guard, ipc.OptGuard, "guard", guard, 1) }
}

// WithLateCheck sets how long a process that was stopped (Ctrl-Z, SIGSTOP) or suspended waits for the
// daemon's answer. When it continues, and the lease's time is over by its own clock, the Client asks the
// daemon. If the daemon has extended the lease without interruption, the lease goes on. If the lock was
// lost, the context ends with the daemon's answer or after that time. Until then the work may run
// without the lock, and Validity is 0. With 0 the context ends at once. Default: 2 s.
func WithLateCheck(most time.Duration) Option {
	return func(cl *call) { cl.lease.lateCheck = most }
}

// WithLinger sets how long the lock stays taken after this client dies, at most the daemon's
// max_ttl. Unlock releases it at once. Default: the daemon's config.
func WithLinger(linger time.Duration) Option {
	return func(cl *call) { cl.duration(&cl.req.Linger, ipc.OptLinger, "linger", linger, 0) }
}

// WithNote adds a note that Who and List show, of at most 200 bytes.
func WithNote(note string) Option {
	return func(cl *call) {
		cl.req.Note = note
		cl.req.Set |= ipc.OptNote
		if len(note) > ipc.MaxNote {
			cl.addBadOption(fmt.Sprintf("a note of %d bytes: at most %d", len(note), ipc.MaxNote))
		}
	}
}

// WithPID names the process for HoldPID, and needs that option. The process must belong to this
// user, unless this user is root. If it ends while Lock still waits, the error matches
// ErrCancelled.
func WithPID(pid int) Option {
	return func(cl *call) {
		cl.req.PID = pid
		cl.req.Set |= ipc.OptPID
		if pid < 1 {
			cl.addBadOption("process " + strconv.Itoa(pid) + ": must be at least 1")
		}
	}
}

// WithBeat loses the lock if Lease.Beat is not called for that time. It is for work that may hang
// instead of ending. The daemon requires at least 100 ms.
func WithBeat(beat time.Duration) Option {
	return func(cl *call) { cl.duration(&cl.req.Beat, ipc.OptBeat, "beat", beat, 1) }
}

// WithHold sets what keeps the lock taken: HoldConn, HoldTTL or HoldPID.
func WithHold(hold Hold) Option {
	return func(cl *call) {
		cl.lease.hold = hold
		cl.req.Set |= ipc.OptHold
		switch hold {
		case HoldConn:
			cl.req.Hold = ipc.HoldConn
		case HoldTTL:
			cl.req.Hold = ipc.HoldTTL
		case HoldPID:
			cl.req.Hold = ipc.HoldPID
		default:
			cl.addBadOption("an unknown hold")
		}
	}
}

// applyOptions applies the options to a request, and reports all invalid ones.
func (cl *call) applyOptions(opts []Option) error {
	for _, opt := range opts {
		opt(cl)
	}
	if cl.req.Has(ipc.OptPID) && cl.req.Hold != ipc.HoldPID {
		cl.addBadOption("WithPID without WithHold(HoldPID)")
	}
	if cl.badOptions == nil {
		return nil
	}
	return invalidError(op(cl.req.Verb), cl.lockName, ipc.CodeOption, strings.Join(cl.badOptions, ", "))
}

// checkNames rejects names that cannot be in one lease.
func checkNames(verb ipc.Verb, names []string) error {
	label := strings.Join(names, ",")
	if len(names) == 0 || len(names) > ipc.MaxNames {
		return invalidError(op(verb), label, ipc.CodeName, fmt.Sprintf("%d names: 1 to %d can be locked together", len(names), ipc.MaxNames))
	}
	for i, name := range names {
		if err := checkName(verb, name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return invalidError(op(verb), label, ipc.CodeName, "the name "+strconv.Quote(name)+" is given twice")
		}
	}
	return nil
}

// checkName rejects an invalid lock name.
func checkName(verb ipc.Verb, name string) error {
	err := ipc.CheckName(name)
	if err == nil {
		return nil
	}
	return invalidError(op(verb), name, ipc.CodeName, err.(*ipc.Error).Text)
}

func (cl *call) addBadOption(what string) { cl.badOptions = append(cl.badOptions, what) }

// duration sets an option that must not be below least.
func (cl *call) duration(to *time.Duration, which ipc.OptionSet, name string, d, least time.Duration) {
	switch {
	case d < least && least > 0:
		cl.addBadOption("a " + name + " of " + d.String() + ": must be more than 0 (omit it for redlockd's default)")
	case d < least:
		cl.addBadOption("a " + name + " of " + d.String() + ": must not be negative")
	}
	*to = min(d, maxDuration)
	cl.req.Set |= which
}
