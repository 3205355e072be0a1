package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// DefaultSocket is the path on which redlockd listens by default.
const DefaultSocket = "/run/redlockd/redlockd.sock"

// protocolVersion is the version of the protocol that this package speaks.
const protocolVersion = "1"

// defaultPatience is the default of WithPatience. A restart of the daemon takes less.
const defaultPatience = 5 * time.Second

// Client is a connection to redlockd, and reconnects when it ends. It is safe for concurrent use
// and meant to be shared: a process needs one.
type Client struct {
	dial      func(context.Context) (net.Conn, error)
	path      string               // for errors
	clock     func() time.Duration // boottime.Exact, except in tests
	patience  time.Duration
	dialWait  time.Duration // see WithDialWait; untilDeadline: not given
	createdAt time.Time     // call.waitUntil counts from here
	calls     *callTable
	done      chan struct{} // closed at the end of Close
	closing   chan struct{} // closed when Close begins: see grantOutlastsConn
	closeOnce sync.Once     // closes closing

	needConn  chan struct{}   // room for one: something needs a connection
	ctx       context.Context // ended by Close
	cancelCtx context.CancelFunc

	daemonClock daemonClock

	connectedAt time.Time // of the connection; only run uses this and shortLived
	shortLived  int       // how many connections in a row ended soon

	idPrefix                              string        // begins the id= of each LOCK of this Client
	owners, reconnects, restarts, resumed atomic.Uint64 // counters

	background sync.WaitGroup // goroutines that spawn started; Close waits for them

	mu             sync.Mutex        // guards the fields below, calls in flight, leases, and what is to be sent; no other mutex is taken inside it. See unlock
	link           *link             // nil: no connection now
	leases         map[string]*Lease // by id: held, or still to be released
	connErr        error             // why there is no connection; nil while there is one
	hasRunEnded    bool              // run has ended
	inherit        bool              // see Inherit
	lostAt         time.Time         // when the last connection ended
	isPatienceOver bool              // patience has passed since lostAt
	expiryTimer    *time.Timer       // runs failExpired; nil: no connection has ended yet
}

// DialOption is an option of Dial.
type DialOption func(*Client)

// WithPatience sets how long calls wait for a new connection after the last one ended. Then they
// fail with ErrUnavailable. See Dial. Default: 5 s.
func WithPatience(patience time.Duration) DialOption {
	return func(c *Client) { c.patience = patience }
}

// untilDeadline is the default of WithDialWait.
const untilDeadline = -1

// WithDialWait bounds how long Dial waits for a daemon that is not there yet. 0 means that Dial
// makes one attempt. Default: until the deadline of its context; if that has none, one attempt.
func WithDialWait(wait time.Duration) DialOption {
	return func(c *Client) { c.dialWait = max(wait, 0) }
}

// Dial connects to the daemon's socket at path, and checks that it speaks this protocol. If path is
// empty, Dial uses $REDLOCK_SOCKET, or else DefaultSocket. It blocks until the daemon has answered
// or ctx is done: a daemon that hangs accepts connections but does not answer. The error matches
// ErrUnavailable if no daemon listens there, ErrDenied if this user may not open the socket, and
// ErrInvalid if path is a URL.
//
// If no daemon listens there yet, Dial waits for it until the deadline of ctx. If ctx has no
// deadline, Dial fails at once. WithDialWait changes both.
//
// ctx bounds Dial only, not the Client.
//
// If the connection ends later, the Client reconnects: at once while a lease needs the connection
// or a call waits, and otherwise at the next call. It resends the requests in progress, so callers
// notice only a pause. Force and Admit are the exception: they fail if they were in progress.
// Without a connection, Lock and LockAll wait as they wait for a holder: until their context is
// done or WithWait has passed, but at least as long as other calls. All other calls wait until
// WithPatience has passed since the connection ended. After that, a call waits for one attempt to
// connect. If it fails, the error matches ErrUnavailable, or is the daemon's reason to refuse the
// connection.
func Dial(ctx context.Context, path string, opts ...DialOption) (*Client, error) {
	path = socketPath(path)
	if strings.Contains(path, "://") {
		return nil, fmt.Errorf("dial %s: %w: redlockd listens on a Unix socket of this host: give the path of the socket, not a URL", path, ErrInvalid)
	}
	c := newClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, dialError(ctx, path, err)
		}
		return conn, nil
	}, boottime.Exact)
	c.path = path
	for _, opt := range opts {
		opt(c)
	}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(dial func(context.Context) (net.Conn, error), clock func() time.Duration) *Client {
	c := &Client{
		dial: dial, clock: clock, patience: defaultPatience, dialWait: untilDeadline, createdAt: time.Now(),
		done: make(chan struct{}), closing: make(chan struct{}), needConn: make(chan struct{}, 1),
		idPrefix: strconv.FormatUint(rand.Uint64()>>24, 36) + ".", leases: make(map[string]*Lease),
	}
	c.calls = newCallTable(&c.mu)
	c.ctx, c.cancelCtx = context.WithCancel(context.Background())
	return c
}

// open makes the first connection.
func (c *Client) open(ctx context.Context) error {
	l, err := c.firstLink(ctx)
	if err != nil {
		c.cancelCtx()
		return err
	}
	c.connectedAt = time.Now()
	c.link = l
	c.background.Go(func() { c.run(l) })
	return nil
}

func socketPath(path string) string { return cmp.Or(path, os.Getenv("REDLOCK_SOCKET"), DefaultSocket) }

// Done returns a channel that is closed by Close only. The end of a connection does not close it.
// See Err.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why there is no connection now, or nil if there is one. The error matches ErrClosed
// after Close, and ErrShutdown if the daemon said that it is stopping. Otherwise it is the reason
// why the last attempt to connect failed, mostly ErrUnavailable.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connErr
}

// Reconnects returns the number of connections after the first one.
func (c *Client) Reconnects() uint64 { return c.reconnects.Load() }

// Restarts returns the number of restarts of the daemon that kept the connection (BACK).
func (c *Client) Restarts() uint64 { return c.restarts.Load() }

// Resumed returns the number of leases that a later connection has resumed.
func (c *Client) Resumed() uint64 { return c.resumed.Load() }

// Close ends the connection, and waits for all goroutines of the Client. Its leases end: their
// contexts end with a cause that matches ErrLost and ErrClosed, and then the daemon releases their
// locks. A lease with HoldTTL stays until its ttl has passed, and one with HoldPID stays with its
// process. If there is no connection at the time, a lease with HoldConn stays for its validity.
// Calls that wait return an error that matches ErrClosed. Only the first Close does anything. It
// returns nil.
//
// A call whose caller gave up, or that still waits, may be granted a lock as Close is called. Close
// releases such a lock first, so that it does not stay with the process or for its linger. It waits
// for the daemon's answer for at most a second.
func (c *Client) Close() error {
	c.closeOnce.Do(func() { close(c.closing) })
	c.awaitReleases()
	c.cancelCtx()
	c.endLeases(ErrClosed) // before the daemon sees the end of the connection and releases them
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.hangUp() // ends the reader, which ends the rest
	}
	c.background.Wait()
	return nil
}

// awaitReleases waits for releases that may outlast the connection, because of HoldPID, HoldTTL or
// a linger.
func (c *Client) awaitReleases() {
	timer := time.NewTimer(byeTimeout)
	defer timer.Stop()
	for c.isReleasing() {
		select {
		case <-c.calls.released:
		case <-timer.C:
			return
		}
	}
}

// isReleasing reports whether a release is in progress that a daemon can answer, or a call that may
// need one.
func (c *Client) isReleasing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connErr != nil {
		return false
	}
	for _, cl := range c.calls.calls {
		// A call that is not idle keeps its request.
		if cl != nil && cl.state != stateIdle && cl.mayBeGranted() && (cl.grantOutlastsConn() || cl.state == stateAbandoned) {
			return true
		}
	}
	for _, l := range c.leases {
		if l.releasing {
			return true
		}
	}
	return c.calls.strayOutlasting > 0
}

func (c *Client) closed() bool { return c.ctx.Err() != nil }

// spawn runs f on a goroutine that Close waits for. f must return when the connection ends or Close
// is called. Once run has ended, spawn does nothing.
func (c *Client) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spawnLocked(f)
}

func (c *Client) spawnLocked(f func()) {
	if !c.hasRunEnded {
		c.background.Go(f) // run is still counted, so the counter does not rise from zero while Close waits
	}
}

// afterLocked runs f after d, unless Close comes first. f must not block, because Close waits for it. The
// caller holds mu.
func (c *Client) afterLocked(d time.Duration, f func()) {
	c.spawnLocked(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			f()
		case <-c.ctx.Done():
		}
	})
}

// run reads each connection until it ends, and reconnects, until Close. Then it ends all leases and
// calls that depend on a connection.
func (c *Client) run(l *link) {
	for l != nil {
		c.connectionEnded(l, l.readLines())
		l = c.reconnect()
	}
	c.mu.Lock()
	c.connErr, c.hasRunEnded = ErrClosed, true
	if c.expiryTimer != nil {
		c.expiryTimer.Stop()
	}
	c.mu.Unlock()
	c.failCalls(ErrClosed, func(*call) bool { return true })
	for _, l := range c.allLeases() {
		l.endWithoutUnlock(lostError(l.name, "", ErrClosed))
	}
	close(c.done)
}

// connectionEnded handles the end of a connection. Leases that the daemon keeps without it, or
// until they are resumed, go on.
func (c *Client) connectionEnded(l *link, err error) {
	cause := l.endError(err)
	// If the daemon neither ended the connection nor said BYE, it may take the end for the end of its
	// client. For example, a write may fail on this host (no memory for a buffer), and then the client
	// also stops reading.
	endedHere := errors.Is(err, errProtocol) || !l.bye && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET)
	if endedHere && !c.closed() {
		c.endLeases(cause) // before the daemon sees that end and releases them
	}
	l.hangUp()
	l.out.stop(cause)
	c.mu.Lock()
	c.connErr, c.lostAt, c.isPatienceOver, c.link = cause, time.Now(), false, nil
	for _, lease := range c.leases {
		// If another program took a lease with HoldPID, the daemon reports its loss to that one.
		lease.detached = lease.cause == nil && (lease.hold == HoldConn || lease.hold == HoldPID && !lease.isTakenElsewhere)
	}
	c.calls.connectionEnded()
	c.mu.Unlock()
	c.calls.noteRelease()
	l.end()
	c.dropAbandoned()
	unknown := fmt.Errorf("%w (ask WHO or STATUS): %w", ErrUnknown, cause) // no answer comes any more
	c.failCalls(unknown, func(cl *call) bool { return cl.isSentOnce() && cl.maybeDone })
	switch {
	case c.closed():
	case errors.Is(err, errProtocol):
		c.failAll(cause)
	default:
		c.failExpired(false)
	}
}

// endLeases ends the leases that the daemon releases when it sees the end of the connection.
func (c *Client) endLeases(cause error) {
	for _, l := range c.allLeases() {
		l.endWithConnection(cause)
	}
}

func (l *Lease) endWithConnection(cause error) {
	if l.hold == HoldConn {
		l.endWithoutUnlock(lostError(l.name, "", cause))
	}
}

func (c *Client) allLeases() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Lease, 0, len(c.leases))
	for _, l := range c.leases {
		all = append(all, l)
	}
	return all
}

// leaseByID returns the lease with that ID if this Client has one. Otherwise it adds and returns
// the given lease.
func (c *Client) leaseByID(id string, otherwise *Lease) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.leases[id]; own != nil || otherwise == nil {
		return own
	}
	c.leases[id] = otherwise
	return otherwise
}
