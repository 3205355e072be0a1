package client

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
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
	eventTime func() time.Duration // of what callers and the daemon do: boottime.Now, except in tests
	dialWait  time.Duration        // see WithDialWait; untilDeadline: not given
	done      chan struct{}        // closed at the end of Close
	closeOnce sync.Once            // begins Close
	released  chan struct{}        // room for one: while Close waits, isReleasing may have changed
	needConn  chan struct{}        // room for one: something needs a connection

	ctx       context.Context // ended by Close
	cancelCtx context.CancelFunc

	connectedAt time.Time // of the connection; only run uses this and shortLived
	shortLived  int       // how many connections in a row ended soon

	background sync.WaitGroup // goroutines that the Client started; Close waits for them

	mu       sync.Mutex // guards the fields below, and leases; no other mutex is taken inside it. See enter
	core     core
	link     *link         // nil: no connection now
	timer    *time.Timer   // runs the timers of the core
	timerAt  time.Duration // when it fires, at the latest; 0: it is not set
	hasEnded bool          // run has ended
	inherit  bool          // see Inherit
}

// DialOption is an option of Dial.
type DialOption func(*Client)

// WithPatience sets how long calls wait for a new connection after the last one ended. Then they
// fail with ErrUnavailable. See Dial. Default: 5 s.
func WithPatience(patience time.Duration) DialOption {
	return func(c *Client) { c.core.patience = patience }
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
	c.path, c.eventTime = path, boottime.Now
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
		dial: dial, clock: clock, eventTime: clock, dialWait: untilDeadline,
		done: make(chan struct{}), released: make(chan struct{}, 1), needConn: make(chan struct{}, 1),
	}
	c.core.init(strconv.FormatUint(rand.Uint64()>>24, 36) + ".")
	c.ctx, c.cancelCtx = context.WithCancel(context.Background())
	return c
}

// open makes the first connection.
func (c *Client) open(ctx context.Context) error {
	l, err := c.firstLink(ctx)
	if err == nil {
		err = c.useLink(l)
	}
	if err != nil {
		c.cancelCtx()
		return err
	}
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
	return c.core.why
}

// Reconnects returns the number of connections after the first one.
func (c *Client) Reconnects() uint64 { return c.count(&c.core.reconnects) }

// Restarts returns the number of restarts of the daemon that kept the connection (BACK).
func (c *Client) Restarts() uint64 { return c.count(&c.core.restarts) }

// Resumed returns the number of leases that a later connection has resumed.
func (c *Client) Resumed() uint64 { return c.count(&c.core.resumed) }

func (c *Client) count(counter *uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *counter
}

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
	c.closeOnce.Do(func() {
		c.enter()
		c.core.closeCalls()
		c.exit()
		c.awaitReleases()
		c.stop()
	})
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.hangUp() // ends the reader, which ends the rest
	}
	c.background.Wait()
	return nil
}

// stop lets no call begin any more, and ends run with the connection.
func (c *Client) stop() {
	c.enter()
	c.core.hangUp()
	c.exit()
	c.cancelCtx()
}

// awaitReleases waits for releases that may outlast the connection, because of HoldPID, HoldTTL or
// a linger.
func (c *Client) awaitReleases() {
	timer := time.NewTimer(byeTimeout)
	defer timer.Stop()
	for c.isReleasing() {
		select {
		case <-c.released:
		case <-timer.C:
			return
		}
	}
}

func (c *Client) isReleasing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.isReleasing()
}

// enter begins an event of the core. The caller passes the event to the core, and then calls exit.
func (c *Client) enter() {
	c.mu.Lock()
	c.core.now = c.eventTime()
}

// exit ends an event of the core, and does what the core wants.
func (c *Client) exit() {
	ended, answered := c.core.effects.ended, c.core.effects.answered
	c.core.effects.ended, c.core.effects.answered = nil, nil
	if c.core.wantsDial {
		c.core.wantsDial = false
		signal(c.needConn)
	}
	if c.core.isClosing {
		signal(c.released)
	}
	c.setTimer()
	l, over := c.link, false
	if over = l != nil && c.core.link != l.number; over {
		c.link = nil
	}
	others := c.core.busy[roomLock]+c.core.busy[roomOther]+c.core.busy[roomResume] > 1
	writes := l != nil && !over && !l.writing && len(c.core.out) > 0
	if writes {
		l.writing = true
	}
	c.mu.Unlock()
	for _, cancel := range ended {
		cancel()
	}
	for cl := answered; cl != nil; {
		next := cl.next
		close(cl.answered)
		cl = next
	}
	if over {
		l.hangUp()
	}
	if writes {
		if others {
			runtime.Gosched() // goroutines that are about to send join this write
		}
		c.flush(l)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is a signal already
	}
}

// setTimer sets the timer to the next one of the core. A timer does not run while the host is suspended, so
// one that should have fired is set again. The caller holds mu.
func (c *Client) setTimer() {
	if len(c.core.timers) == 0 || c.hasEnded {
		return
	}
	next := c.core.timers[0].when
	if c.timerAt != 0 && c.timerAt <= next && c.timerAt >= c.core.now {
		return
	}
	c.timerAt = next
	if in := max(0, next-c.core.now); c.timer == nil {
		c.timer = time.AfterFunc(in, c.onTimer) // run stops it
	} else {
		c.timer.Reset(in)
	}
}

func (c *Client) onTimer() {
	c.mu.Lock()
	c.core.now = c.clock() // the other clock notices a suspension a millisecond late
	if c.hasEnded {
		c.mu.Unlock()
		return
	}
	c.background.Add(1) // run is still counted, so the counter does not rise from zero while Close waits
	defer c.background.Done()
	c.timerAt = 0
	c.core.runTimers()
	c.exit()
}

// do begins a call, and waits for its answer.
func (c *Client) do(ctx context.Context, cl *call) error {
	c.enter()
	c.core.begin(cl)
	c.exit()
	return c.await(ctx, cl)
}

// await waits for the answer to a call, even if connections end meanwhile. If ctx is done first, the core
// has the call from then on.
func (c *Client) await(ctx context.Context, cl *call) error {
	select {
	case <-cl.answered:
		return cl.err
	case <-ctx.Done():
	}
	c.enter()
	why := c.core.why
	left := c.core.leave(cl)
	c.exit()
	if !left {
		<-cl.answered
		return cl.err
	}
	err := contextError(cl.op(), cl.lockName, ctx)
	if why != nil {
		return fmt.Errorf("%w; there is no connection: %w", err, why)
	}
	return err
}

// run reads each connection until it ends, and reconnects, until Close. Then it ends all leases and
// calls that depend on a connection.
func (c *Client) run(l *link) {
	for l != nil {
		err := c.read(l)
		c.enter()
		c.core.ended(l.number, err, l.refused)
		c.exit()
		l.hangUp() // if Close has done so, the core has not
		l = c.reconnect()
	}
	c.enter()
	c.core.close()
	c.hasEnded = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.exit()
	close(c.done)
}

// reconnect returns the next connection, already in use, or nil after Close. It blocks while no
// lease and no call needs one.
func (c *Client) reconnect() *link {
	// There is no pause, unless the last connection ended soon after it was made.
	if c.shortLived++; time.Since(c.connectedAt) >= maxPause {
		c.shortLived = 0
	}
	for try := max(0, c.shortLived-1); pause(c.ctx, try) && c.awaitNeedOfConn(&try); try++ {
		ctx, cancel := context.WithTimeout(c.ctx, attemptTimeout)
		l, err := c.newLink(ctx)
		cancel()
		if err == nil {
			err = c.useLink(l)
		}
		if err == nil {
			return l
		}
		c.enter()
		c.core.attemptFailed(err)
		c.exit()
	}
	return nil
}

// awaitNeedOfConn waits until a connection is needed, and returns false once the Client is closed.
// If it had to wait, the next attempt is made at once.
func (c *Client) awaitNeedOfConn(try *int) bool {
	for !c.wantsConnection() {
		*try = 0
		select {
		case <-c.needConn:
		case <-c.ctx.Done():
			return false
		}
	}
	return c.ctx.Err() == nil
}

func (c *Client) wantsConnection() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.wantsConnection()
}

// useLink makes a new connection the current one.
func (c *Client) useLink(l *link) (err error) {
	c.connectedAt = time.Now()
	c.enter()
	defer c.exit()
	if err = c.ctx.Err(); err == nil && c.inherit {
		err = inheritable(l.conn)
	}
	if err != nil {
		l.hangUp()
		return fmt.Errorf("dial %s: %w", c.path, err)
	}
	c.core.connected(l.clock, l.saidBye)
	c.link, l.number = l, c.core.link
	return nil
}
