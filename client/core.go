package client

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

const (
	// byeTimeout is how long answers are read after a write failed, or after the daemon said that it
	// stops.
	byeTimeout = time.Second
	// maxPending bounds the bytes that stay unwritten if the daemon does not read.
	maxPending = 1 << 20
)

// errProtocol means that the other side sent something that is not this protocol.
var errProtocol = errors.New("it does not speak the protocol")

// core is what a Client knows and decides: its calls, its leases and their timers. It does no I/O,
// starts no goroutine and reads no clock. The Client passes each event to it, and then does what it
// wants: see effects. The cores of the Python client (_core.py) and of the Node client (core.js) decide the
// same, mostly under the same names.
//
// A lease outlasts its connection. When the connection ends, the lease is detached: it is held until its
// timer ends it, and is not extended. Each new connection sends RESUME for it. Other requests about the
// lease wait for the answer. A lease with HoldPID is not detached, but no connection would report its
// loss. So each new connection sends RESUME for it as well. (After FORCE another client holds the lock
// at once.)
type core struct {
	now      time.Duration // of the event, on the Client's clock
	patience time.Duration
	idPrefix string // begins the id= of each LOCK of this Client
	effects

	link        int           // the number of the connection; 0: there is none. It tells whether a timer belongs to this one
	links       int           // the number of the last connection
	bye         bool          // the daemon said BYE
	mute        error         // why nothing can be written any more, or nil
	why         error         // why there is no connection; nil while there is one
	lostAt      time.Duration // when the last connection ended
	daemonClock daemonClock
	isClosing   bool // Close has begun
	isClosed    bool // Close ends the connection: no call begins any more

	flight tagTable
	busy   [roomCount]int     // calls in flight
	queues [roomCount][]*call // calls that wait for room, in order
	leases map[string]*Lease  // by id: held, or still to be released
	timers timers
	expiry timer // runs failExpired

	owners, reconnects, restarts, resumed uint64 // counters
}

// effects are what the Client does after an event, in this order. It then also closes the connection if
// link is 0, and sets its timer to the first one of timers.
type effects struct {
	ended     []func() // end the contexts of leases
	answered  *call    // the first one of those whose callers continue
	out       []byte   // is to be written
	wantsDial bool     // a call needs a connection
}

func (c *core) init(idPrefix string) {
	c.idPrefix, c.patience, c.leases = idPrefix, defaultPatience, make(map[string]*Lease)
	c.expiry.run = c.failExpired
}

// runTimers runs the timers that are due.
func (c *core) runTimers() {
	for one := c.timers.due(c.now); one != nil; one = c.timers.due(c.now) {
		one.run()
	}
}

// after runs f after a time, unless this connection has ended.
func (c *core) after(d time.Duration, f func()) {
	link := c.link
	c.timers.start(&timer{run: func() {
		if c.link == link {
			f()
		}
	}}, c.now+d)
}

// wantsConnection reports whether a lease must be resumed, or a call waits.
func (c *core) wantsConnection() bool {
	for cl := range c.flight.calls() {
		if cl.shouldSend() {
			return true
		}
	}
	for _, l := range c.leases {
		if l.state.needsResume() {
			return true
		}
	}
	return false
}

// connected makes a new connection the current one, and sends on it what is in flight, after a RESUME for
// each lease that needs it. saidBye tells whether the daemon has already said BYE.
func (c *core) connected(clock daemonClock, saidBye bool) {
	if c.links++; c.links > 1 {
		c.reconnects++
	}
	c.daemonClock = clock
	c.link, c.why, c.mute, c.bye = c.links, nil, nil, false
	for _, l := range c.leases {
		if l.state.needsResume() {
			c.resume(l)
		}
	}
	for cl := range c.flight.calls() {
		if !cl.sent && cl.shouldSend() && !cl.awaitsResume() {
			c.send(cl)
		}
	}
	if saidBye {
		c.stopping()
	}
}

// ended is called when a connection has ended. Leases that the daemon keeps without it, or until they are
// resumed, go on. err is why it cannot be read any more.
func (c *core) ended(link int, err error, refused *Error) {
	if c.link != link {
		return
	}
	// If the daemon neither ended the connection nor said BYE, it may take the end for the end of its
	// client. For example, a write may fail on this host (no memory for a buffer), and then the client
	// also stops reading. Then the leases end before the daemon sees that end and releases them.
	isGarbage := errors.Is(err, errProtocol)
	here := isGarbage || !c.bye && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET)
	c.link, c.out, c.lostAt = 0, nil, c.now
	c.why = endError(err, c.isClosed, c.bye, refused)
	for _, l := range c.leases {
		if here && l.hold == HoldConn && !c.isClosed {
			c.apply(l, wasLost, lostError(l.name, "", c.why))
		}
		switch {
		case l.hold == HoldConn:
			c.apply(l, connectionEnded, nil)
		case l.hold == HoldPID && !l.isFound: // the daemon reports the loss of a found one to the program that took it
			c.apply(l, watchEnded, nil)
		}
	}
	c.queues[roomResume] = nil
	c.flight.forgetConnection()
	for cl := range c.flight.calls() {
		cl.maybeDone = cl.maybeDone || cl.sent
		cl.sent, cl.limited, cl.probed = false, false, 0
		cl.lines = nil // the whole answer will come again
		switch {
		case cl.state == callAbandoned && !cl.shouldSend():
			c.fail(cl, nil)
		case c.isClosed:
		case cl.isDoneOnce() && cl.maybeDone:
			c.fail(cl, fmt.Errorf("%w (ask WHO or STATUS): %w", ErrUnknown, c.why))
		case isGarbage && cl.state == callWaiting:
			c.fail(cl, c.why)
		}
	}
	c.failExpired()
}

// endError returns why a connection has ended.
func endError(err error, isClosed, saidBye bool, refused *Error) error {
	switch {
	case isClosed:
		return ErrClosed
	case refused != nil:
		return fmt.Errorf("%w: it closed the connection: %w", ErrUnavailable, refused)
	case saidBye:
		return fmt.Errorf("%w: it said BYE", ErrShutdown)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it closed the connection (stopped or killed?)", ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// stopping is called when the daemon says that it stops and will close the connection. It bounds the wait
// for that.
func (c *core) stopping() {
	if !c.bye {
		c.bye = true
		c.after(byeTimeout, func() { c.ended(c.link, errSilent, nil) })
	}
}

// errSilent means that the daemon did not close the connection after BYE.
var errSilent = errors.New("it has not closed the connection")

// writeFailed is called when nothing can be written any more. What the daemon said before is still read:
// it may be the reason.
func (c *core) writeFailed(link int, err error) {
	if c.link == link && c.mute == nil {
		c.mute, c.out = err, nil
		c.after(byeTimeout, func() { c.ended(c.link, fmt.Errorf("writing to it: %w", err), nil) })
	}
}

// dialErrors are the errors of an attempt to connect that say more than ErrUnavailable.
var dialErrors = []error{ErrUnavailable, ErrShutdown, ErrDenied, ErrLimit, ErrInvalid, ErrInternal, ErrClosed}

// attemptFailed is called when no connection could be made. If the daemon refuses this client, all calls
// fail: another attempt would not help.
func (c *core) attemptFailed(err error) {
	if !slices.ContainsFunc(dialErrors, func(known error) bool { return errors.Is(err, known) }) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.why = err
	refused, ok := errors.AsType[*Error](err)
	isFinal := ok && refused.Code != string(ipc.CodeShutdown)
	for cl := range c.flight.calls() {
		if isFinal && cl.state == callWaiting || c.failsAt(cl) == nextAttempt {
			c.fail(cl, err)
		}
	}
	c.failExpired()
}

// failExpired fails the calls that have waited long enough for a connection, and sets the timer for the
// next one.
func (c *core) failExpired() {
	if c.link != 0 || c.isClosed {
		return
	}
	next := forever
	for cl := range c.flight.calls() {
		switch at := c.failsAt(cl); {
		case at == nextAttempt:
		case at <= c.now:
			c.fail(cl, c.why)
		default:
			next = min(next, at)
		}
	}
	c.expireAt(next)
}

// expireAt has failExpired run at a time of failsAt.
func (c *core) expireAt(at time.Duration) {
	if at != forever && at != nextAttempt && (!c.expiry.set || at < c.expiry.when) {
		c.timers.start(&c.expiry, at)
	}
}

// Values of failsAt that are not times. forever is also a value of call.waitUntil.
const (
	nextAttempt time.Duration = -1        // when the next attempt to connect has failed
	forever     time.Duration = 1<<63 - 1 // never
)

// failsAt returns when a call fails if there is no connection until then.
func (c *core) failsAt(cl *call) time.Duration {
	if cl.waitUntil == forever || cl.outlivesCaller() {
		return forever
	}
	if at := max(cl.waitUntil, c.lostAt+c.patience); at > cl.begun {
		return at
	}
	return nextAttempt
}

// closeCalls begins to close. A call that waits may be granted a lock that would stay, so it is cancelled. So
// is a lock that was granted, and that its caller has not got yet.
func (c *core) closeCalls() {
	c.isClosing = true
	for cl := range c.flight.calls() {
		if cl.state == callWaiting && cl.grantOutlastsConn() {
			c.answer(cl, callError(cl.op(), cl.lockName, ErrClosed))
			c.abandon(cl)
		}
	}
	for _, l := range c.leases {
		if !l.isTaken {
			c.apply(l, wasDropped, lostError(l.name, "", ErrClosed))
		}
	}
}

// isReleasing reports whether a release is in progress that a daemon can answer, or a call that may need
// one.
func (c *core) isReleasing() bool {
	if c.link == 0 {
		return false
	}
	for cl := range c.flight.calls() {
		if cl.state == callAbandoned && (cl.mayBeGranted() || cl.req.Verb == ipc.VerbUnlock) {
			return true
		}
	}
	return slices.ContainsFunc(c.flight.tags, func(t tagged) bool { return t.stray == strayOutlasts }) ||
		slices.ContainsFunc(c.queues[roomOther], func(cl *call) bool { return cl.req.Verb == ipc.VerbUnlock })
}

// hangUp is called before Close ends the connection. The leases that the daemon then releases end first.
func (c *core) hangUp() {
	c.isClosed = true
	for _, l := range c.leases {
		if l.hold == HoldConn {
			c.apply(l, wasLost, lostError(l.name, "", ErrClosed))
		}
	}
}

// close ends all leases and calls. Those that waited for room fail as they start.
func (c *core) close() {
	c.isClosed, c.why = true, ErrClosed
	for cl := range c.flight.calls() {
		c.fail(cl, ErrClosed)
	}
	for _, l := range c.leases {
		c.apply(l, wasLost, lostError(l.name, "", ErrClosed))
	}
	c.timers = nil
}
