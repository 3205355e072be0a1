package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Hold is how long a lock is kept without its client asking for it.
type Hold int

const (
	// HoldConn keeps the lock, extended by the daemon, while the Client's
	// connection is open, or is made again within the validity. It is what is done
	// unless told otherwise.
	HoldConn Hold = iota
	// HoldTTL keeps it for its ttl, whatever becomes of this process; nothing but
	// Lease.Extend extends it. After a connection was made anew, Check, Extend and
	// Unlock tell whether somebody took it away by force: its context does not.
	HoldTTL
	// HoldPID keeps it, extended by the daemon, while a process lives: this one, or
	// that of WithPID; whatever becomes of the connection. The process is who holds
	// it: a second Lock for it is refused with ErrHeld (code ALREADY) at once, and one
	// that waits for what it holds itself with ErrDeadlock. Client.LeaseOf finds it.
	// It takes a daemon on Linux.
	HoldPID
)

// unlockTimeout bounds how long Unlock waits if ctx is done or has no deadline and has ended with the lease.
const unlockTimeout = 5 * time.Second

// Lease is a lock that is held. It ends by Unlock, by loss, or with what holds it
// (see WithHold). It is safe for concurrent use.
type Lease struct {
	c          *Client
	name       string
	names      []string // nil: just name
	id         string
	owner      string // who has it on a connection; "": the process
	fence      uint64
	slot       int
	hold       Hold
	guardGiven bool // the guard was given: it does not go by the ttl
	found      bool // another connection took it: it is given back by Unlock only

	detached      atomic.Bool // it goes with a connection, and that it went with has ended
	lossUnwatched atomic.Bool // it goes by a process, and the connection that heard of its loss has ended

	mu              sync.Mutex    // guards what follows
	deadline        time.Duration // on the client's clock; only moves forward
	guard           time.Duration // how long before the deadline it is given up
	daemonGuard     time.Duration // the daemon's guard; 0: it has not said
	ttl             time.Duration // as it was asked for; 0: the daemon's default
	longestValidity time.Duration // that an answer said it stands, since the ttl was asked for
	maxHoldEnd      time.Duration // a deadline from here on is that of WithMax; 0: there is none
	cause           error         // why it is over: ErrUnlocked or a loss; nil while it is held
	timer           *time.Timer
	checkNext       bool            // the timer is set for a CHECK
	checking        bool            // a CHECK of the timer's is under way
	unlockPending   bool            // lost while the daemon may keep it: to be unlocked at the deadline
	maybeKept       bool            // RESUME was refused, and the daemon may keep it for the connection
	restForced      bool            // forced away, and the daemon keeps its other names until its holder has stopped
	unlocking       bool            // UNLOCK was sent, or need not be
	unlockMaybeDone bool            // one that failed may have been done
	releasing       bool            // it was, for nobody, and is counted by Client.gives
	base            context.Context // whose values ctx has
	ctx             context.Context // nil until somebody wants it
	cancel          context.CancelCauseFunc
}

// Name is the lock's name; of several, all of them, with commas between.
func (l *Lease) Name() string { return l.name }

// Slot is which place of the lock this one has, from 1 on; 0 where it was taken
// without WithSlots.
func (l *Lease) Slot() int { return l.slot }

// ID is the daemon's name for the lease. It is a secret: whoever knows it can
// unlock.
func (l *Lease) ID() string { return l.id }

// Fence is the fencing token: larger than that of every grant of this lock that
// was given before this one was asked for, and never the same twice. (Readers are
// ordered against writers, and the places of WithSlots each for itself.) It stays
// below 2^53. What is written to should remember the largest that it has seen,
// and refuse a smaller one: then a holder that was paused past its deadline does
// no harm.
func (l *Lease) Fence() uint64 { return l.fence }

// Deadline is until when the lease is ours as far as is known here: the daemon
// moves it on while it extends the lease, and nobody else can hold the lock
// before. After the end of the lease it is the last one known.
func (l *Lease) Deadline() time.Time { return time.Now().Add(l.DeadlineBoottime() - l.c.clock()) }

// DeadlineBoottime is the deadline as time since the boot of this host, on
// CLOCK_BOOTTIME, which other processes of this host can read too.
func (l *Lease) DeadlineBoottime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Guard is how long before the deadline the lease is given up, and its Context ends, unless
// its deadline has moved on: what WithGuard says, or a fifth of the ttl.
func (l *Lease) Guard() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.guard
}

// Validity is how long the lease is ours yet, as far as is known here; 0 once it
// is over. It goes by CLOCK_BOOTTIME, so a suspension of the host counts.
func (l *Lease) Validity() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return 0
	}
	return max(0, l.deadline-l.c.clock())
}

// Context ends when the lease does: on its loss, before the deadline by the
// guard, with a cause that matches ErrLost; on Unlock with the cause
// ErrUnlocked. It has the values of the context that the lock was taken with,
// but not its end. It is the same on each call.
//
// Its timer stands still while the host is suspended. After that the end comes
// with the daemon's word, or at the latest by half of the validity that was left.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.makeContext(context.WithoutCancel(l.base))
	}
	return l.ctx
}

// makeContext needs mu. Who has another context already, having found the lease before Do has
// come to run, keeps that until both end.
func (l *Lease) makeContext(parent context.Context) {
	before := l.cancel
	l.ctx, l.cancel = context.WithCancelCause(parent)
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

// Unlock gives the lock back, and waits until a quorum of nodes has released it
// or ctx is done. The release goes on if ctx is done first, even before the
// call, but its outcome is unknown then. It is nil also where too few nodes have answered
// in time (NodeTimeout of Hello): the daemon repeats the release until they do, or the lock
// has expired. From the call on the lease's context has ended and Validity is 0.
//
// A lease that was unlocked before is ErrNotHeld, one that was lost ErrLost, also where
// the daemon does not know it any more. (Of LockAll's names of which one was forced away
// others can have the rest from then on, and not only at the deadline.)
// After a refusal for another reason (ErrLimit, say), and where there was no daemon
// (ErrUnavailable), Unlock can be called again.
func (l *Lease) Unlock(ctx context.Context) error {
	alive := ctx.Err() == nil
	if err := l.beginUnlock(); err != nil {
		return err
	}
	if alive && context.Cause(ctx) == ErrUnlocked {
		// ctx is under the lease's own, and has just ended with it.
		detached, cancel := detach(ctx)
		defer cancel()
		ctx = detached
	}
	cl, err := l.begin(ctx, ipc.VerbUnlock)
	if err != nil {
		l.c.spawn(l.postUnlock)
		return err
	}
	if err := l.c.roundTrip(ctx, cl); err != nil {
		return err
	}
	defer l.c.calls.release(cl)
	return l.unlocked(cl, &cl.reply)
}

// detach is ctx without its end, but for its deadline, or else unlockTimeout.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(unlockTimeout)
	}
	return context.WithDeadline(context.WithoutCancel(ctx), deadline)
}

// Check asks the daemon whether the lease still stands, and learns its deadline:
// nil, or an error that matches ErrLost or ErrNotHeld, or says why there is no
// answer. It is answered from the daemon's memory, without a round trip to the nodes.
func (l *Lease) Check(ctx context.Context) error {
	return l.ask(ctx, ipc.VerbCheck, 0)
}

// Extend extends the lease now, on the nodes, and sets its ttl, 0 to leave that
// as it is. It is what keeps a lease with HoldTTL; others are extended by the
// daemon anyway. A smaller ttl does not shorten the deadline that stands.
// Errors are those of Check; the lease stands as it did if it is ErrNoQuorum.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < 0 {
		return invalidError(op(ipc.VerbExtend), l.name, ipc.CodeOption, "a ttl of "+ttl.String())
	}
	return l.ask(ctx, ipc.VerbExtend, ttl)
}

// Beat tells the daemon that the work goes on, for a lease with WithBeat: it is lost
// when that is not told for so long. Errors are those of Check; ErrInvalid if the
// lease needs none.
func (l *Lease) Beat(ctx context.Context) error {
	return l.ask(ctx, ipc.VerbBeat, 0)
}

func (l *Lease) ask(ctx context.Context, verb ipc.Verb, ttl time.Duration) error {
	if err := l.endedError(verb); err != nil {
		return err
	}
	cl, err := l.begin(ctx, verb)
	if err != nil {
		return err
	}
	if ttl > 0 {
		cl.req.TTL = min(ttl, maxDuration)
		cl.req.Set |= ipc.OptTTL
	}
	if err := l.c.roundTrip(ctx, cl); err != nil {
		return err
	}
	defer l.c.calls.release(cl)
	return l.handleReply(cl, &cl.reply)
}

// begin is a call about the lease.
func (l *Lease) begin(ctx context.Context, verb ipc.Verb) (*call, error) {
	cl, err := l.c.begin(ctx, verb, l.name)
	if err != nil {
		return nil, err
	}
	cl.setLease(l)
	return cl, nil
}

// stands is nil, or the error of a request about a lease that is over.
func (l *Lease) endedError(verb ipc.Verb) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == ErrUnlocked {
		return notHeldError(verb, l.name)
	}
	return l.cause
}
