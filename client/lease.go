package client

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Hold says what keeps a lock taken.
type Hold int

const (
	// HoldConn keeps the lock while the Client's connection is open, or reconnects within the
	// validity. The daemon extends it. This is the default.
	HoldConn Hold = iota
	// HoldTTL keeps the lock for its ttl, whatever happens to this process. Only Lease.Extend
	// extends it. After a reconnect, the lease's context does not report that the lock was revoked
	// (FORCE); Check, Extend and Unlock do.
	HoldTTL
	// HoldPID keeps the lock while a process lives: this one, or the one of WithPID. The daemon
	// extends it, whatever happens to the connection. The process is the holder. A second Lock for
	// it fails at once with ErrHeld (code ALREADY), or with ErrDeadlock if it would wait for itself.
	// Client.LeaseOf finds the lease. HoldPID needs a daemon on Linux.
	HoldPID
)

// unlockTimeout bounds the Unlock of Do. It also bounds an Unlock whose context has no deadline and
// has just ended with the lease.
const unlockTimeout = 5 * time.Second

// Lease is a lock that is held. It ends by Unlock, by loss, or with the connection or process that
// holds it (see WithHold). It is safe for concurrent use.
type Lease struct {
	c           *Client
	name        string
	names       []string // nil: only name
	id          string
	owner       string // owner= of the request; empty: the process is the owner
	fence       uint64
	slot        int
	hold        Hold
	hasOwnGuard bool          // WithGuard was used, so the ttl does not set the guard
	lateCheck   time.Duration // see WithLateCheck
	isFound     bool          // another connection took it, so only Unlock releases it

	// Client.mu guards the fields below.
	state           leaseState
	isTaken         bool          // its caller has got it
	cause           error         // why it ended: ErrUnlocked or a loss; nil while it is held
	deadline        time.Duration // on the client's clock; never moves back
	guard           time.Duration // how long before the deadline the context ends
	ttl             time.Duration // as requested; 0: the daemon's default
	longestValidity time.Duration // the longest that an answer gave since the ttl was requested
	maxHoldEnd      time.Duration // a deadline from here on is caused by WithMax; 0: no bound
	lateUntil       time.Duration // until then, a process that was stopped waits for the daemon's answer; 0: it does not
	lateBy          time.Duration // how late the timer was then
	timer           timer
	checking        bool            // a CHECK of the timer is under way
	unlockMaybeDone bool            // an UNLOCK failed, but the daemon may have executed it
	base            context.Context // the context whose values ctx has
	ctx             context.Context // nil until it is needed
	outer           *Lease          // with whose context ctx ends, or nil
	cancel          context.CancelCauseFunc
}

// Name returns the lock's name. Several names are joined by commas.
func (l *Lease) Name() string { return l.name }

// Slot returns the slot of the lock that this lease has, from 1. It is 0 without WithSlots.
func (l *Lease) Slot() int { return l.slot }

// ID returns the daemon's name for the lease. It is a secret: a client that knows it can unlock the
// lease.
func (l *Lease) ID() string { return l.id }

// Fence returns the fencing token. If this lease was requested after another grant of the lock was
// issued, its token is larger. No token is issued twice. (Readers are ordered against writers, but
// not against each other. Each slot of WithSlots has its own order.) It stays below 2^53. The
// resource that you write to should remember the largest token that it has seen, and reject smaller
// ones. Then a holder that was paused past its deadline does no harm.
func (l *Lease) Fence() uint64 { return l.fence }

// Deadline returns the time until which the lease is certain to be held, as far as this process
// knows. No other client can hold the lock before. The daemon moves the deadline forward while it
// extends the lease. After the end of the lease, Deadline returns the last known one.
func (l *Lease) Deadline() time.Time { return time.Now().Add(l.DeadlineBoottime() - l.c.clock()) }

// DeadlineBoottime returns the deadline as time since the boot of this host, on CLOCK_BOOTTIME.
// Other processes of this host can read that clock too.
func (l *Lease) DeadlineBoottime() time.Duration {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.deadline
}

// Guard returns how long before its deadline the lease's Context ends, unless the deadline moves:
// the time of WithGuard, or a fifth of the ttl.
func (l *Lease) Guard() time.Duration {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.guard
}

// Validity returns how long the lease is still held, as far as this process knows. It is 0 after
// the end, and while this process waits for the daemon's answer because it was stopped for long. It
// uses CLOCK_BOOTTIME, so a suspension of the host counts.
func (l *Lease) Validity() time.Duration {
	now := l.c.clock()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.cause != nil || now >= l.contextEnd() {
		return 0
	}
	return l.deadline - now
}

// Context returns a context that ends with the lease. On a loss it ends before the deadline, by the
// guard, with a cause that matches ErrLost. On Unlock it ends with the cause ErrUnlocked. It has
// the values of the context that was passed to Lock, but does not end with it. Every call returns
// the same context.
//
// A timer does not run while the host is suspended. After a suspension the context ends when the
// daemon reports the loss, or at the latest after half of the remaining validity. If this process was
// stopped (Ctrl-Z, SIGSTOP) until the time was over, the context ends when the daemon has said that the
// lease is lost, or has not answered for 2 s: see WithLateCheck.
func (l *Lease) Context() context.Context {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.ctx == nil {
		l.makeContextLocked(context.WithoutCancel(l.base))
	}
	return l.ctx
}

// makeContextLocked makes the lease's context. If a goroutine found the lease before Do ran, it may have
// a context already. That context then ends together with the new one. The caller holds mu.
func (l *Lease) makeContextLocked(parent context.Context) {
	before := l.cancel
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(parent, leaseKey{}, l))
	if cancel := l.cancel; before != nil {
		l.cancel = func(cause error) {
			before(cause)
			cancel(cause)
		}
	}
	if l.cause != nil {
		l.cancel(l.cause)
	}
}

// leaseKey is the key of a Lease in its context.
type leaseKey struct{}

// leaseAround returns the lease whose context ctx is derived from, or nil.
func leaseAround(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// UnlockOption is an option of Unlock.
type UnlockOption func(*ipc.Request)

// WithReleaseWait bounds how long the daemon waits until a quorum of nodes has released the lock.
// With 0, Unlock returns once the daemon has recorded the release and queued it for each node. The
// daemon repeats it as usual. A Lock on this host that begins after that reaches every node after
// the release. Default: the daemon's node_timeout, which is also the maximum.
func WithReleaseWait(wait time.Duration) UnlockOption {
	return func(r *ipc.Request) {
		r.Wait = min(max(wait, 0), maxDuration)
		r.Set |= ipc.OptWait
	}
}

// Unlock releases the lock, and waits until a quorum of nodes has released it or ctx is done. If
// ctx is done first, even before the call, the release goes on, but its outcome is unknown. Unlock
// also returns nil if too few nodes answered in time (NodeTimeout of Hello): the daemon repeats the
// release until they answer, or until the lock has expired. As soon as Unlock is called, the
// lease's context ends and Validity is 0.
//
// The error matches ErrNotHeld if the lease was already unlocked. It matches ErrLost if the lease
// was lost, or if the daemon no longer knows it. (If one of LockAll's names was revoked, this call
// releases the other names; otherwise they stay taken until the deadline.) After any other refusal
// (such as ErrLimit), and without a daemon (ErrUnavailable), Unlock can be called again.
func (l *Lease) Unlock(ctx context.Context, opts ...UnlockOption) error {
	alive := ctx.Err() == nil
	cl := newCallAbout(l, ipc.VerbUnlock)
	for _, opt := range opts {
		opt(&cl.req)
	}
	l.c.enter()
	err := l.c.core.release(cl)
	l.c.exit()
	if err != nil {
		return err
	}
	if alive && context.Cause(ctx) == ErrUnlocked {
		// ctx is derived from the lease's own context, and has just ended with it
		deadline, bounded := ctx.Deadline()
		if !bounded {
			deadline = time.Now().Add(unlockTimeout)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
	}
	return l.c.await(ctx, cl)
}

// Check asks the daemon whether the lease is still held, and updates the deadline. The error
// matches ErrLost or ErrNotHeld, or says why there is no answer. The daemon answers from memory,
// without a round trip to the nodes.
func (l *Lease) Check(ctx context.Context) error {
	return l.ask(ctx, ipc.VerbCheck, nil)
}

// Extend extends the lease now, on the nodes, and sets its ttl. A ttl of 0 keeps the current one.
// Only a lease with HoldTTL needs Extend; the daemon extends all others. A smaller ttl does not
// shorten the current deadline. Errors are as for Check. If the error matches ErrNoQuorum, the
// lease is unchanged.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < 0 {
		return invalidError(op(ipc.VerbExtend), l.name, ipc.CodeOption, "a ttl of "+ttl.String()+": must not be negative")
	}
	return l.ask(ctx, ipc.VerbExtend, func(r *ipc.Request) {
		if ttl > 0 {
			r.TTL = min(ttl, maxDuration)
			r.Set |= ipc.OptTTL
		}
	})
}

// Downgrade makes an exclusive lease a shared one, on the nodes. Other clients with WithShared can
// then get the lock as well, and no client can get it exclusively in between. The work must have
// stopped writing before. Errors are as for Check. If the error matches ErrNoQuorum, the lease
// counts as shared, and other readers may get the lock later. A lease cannot become exclusive
// again.
func (l *Lease) Downgrade(ctx context.Context) error {
	return l.ask(ctx, ipc.VerbExtend, func(r *ipc.Request) {
		r.Mode = ipc.Shared
		r.Set |= ipc.OptMode
	})
}

// Beat tells the daemon that the work makes progress. A lease with WithBeat is lost if Beat is not
// called for that time. Errors are as for Check. The error matches ErrInvalid if the lease has no
// WithBeat.
func (l *Lease) Beat(ctx context.Context) error {
	return l.ask(ctx, ipc.VerbBeat, nil)
}

// ask sends a request about the lease, with the options that set adds; set may be nil.
func (l *Lease) ask(ctx context.Context, verb ipc.Verb, set func(*ipc.Request)) error {
	l.c.mu.Lock()
	err := l.endedError(verb)
	l.c.mu.Unlock()
	if err != nil {
		return err
	}
	cl := newCallAbout(l, verb)
	if set != nil {
		set(&cl.req)
	}
	return l.c.do(ctx, cl)
}

// endedError returns nil, or the error of a request about a lease that has ended. The caller holds
// Client.mu.
func (l *Lease) endedError(verb ipc.Verb) error {
	if l.cause == ErrUnlocked {
		return notHeldError(verb, l.name)
	}
	return l.cause
}

// contextEnd returns when the lease's context ends unless the deadline moves. The caller holds Client.mu.
func (l *Lease) contextEnd() time.Duration { return l.deadline - l.guard }
