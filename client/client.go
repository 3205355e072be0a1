package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// DefaultSocket is where redlockd listens unless told otherwise.
const DefaultSocket = "/run/redlockd/redlockd.sock"

// protocolVersion is what is spoken here.
const protocolVersion = "1"

// defaultPatience is WithPatience's default: a restart of the daemon takes less.
const defaultPatience = 5 * time.Second

// Client is a connection to redlockd, which is made anew when it ends. It is safe
// for concurrent use, and meant to be shared: a process needs one.
type Client struct {
	dial     func(context.Context) (net.Conn, error)
	path     string               // for errors
	clock    func() time.Duration // boottime, but for tests
	patience time.Duration
	born     time.Time // what call.until counts from
	calls    *callTable
	done     chan struct{} // closed when all is over, after Close
	closing  chan struct{} // closed when Close begins: see outlasts
	shut     sync.Once     // closes it

	link      atomic.Pointer[link] // nil: none just now
	lastEnded atomic.Uint64        // the number of the last link that has ended
	needConn  chan struct{}        // one place: something wants a connection
	ctx       context.Context      // ended by Close
	cancelCtx context.CancelFunc

	connectedAt time.Time // the connection; this and short are for run
	shortLived  int       // so many of them ended soon, one after the other

	idPrefix                              string        // begins the id= of each LOCK: of this Client only
	owners, reconnects, restarts, resumed atomic.Uint64 // how many there have been

	background sync.WaitGroup // see spawn

	mu           sync.Mutex        // guards what follows
	leases       map[string]*Lease // by id: held, or to be released yet
	connErr      error             // why there is no connection; nil while there is one
	finished     bool              // run has ended
	inherit      bool              // see Inherit
	lostAt       time.Time         // when the last connection ended
	patienceOver bool              // since then patience is over
	expiryTimer  *time.Timer       // nil: there was no outage yet
	releasing    int               // how much is being given back that may outlast the connection: see Close

	releasingChanged chan struct{} // one place: giving is less, or over another
}

// DialOption is a wish about a Client.
type DialOption func(*Client)

// WithPatience sets for how long after the end of a connection calls wait for the
// next one; then they fail with ErrUnavailable. See Dial. Default: 5 s.
func WithPatience(patience time.Duration) DialOption {
	return func(c *Client) { c.patience = patience }
}

// Dial connects to the daemon's socket at path and makes sure that it speaks
// this protocol. An empty path is $REDLOCK_SOCKET, or else DefaultSocket. It
// blocks until the daemon has answered or ctx is done: a daemon that hangs
// accepts connections and answers none. The error matches ErrUnavailable where
// nobody listens and ErrDenied where the socket may not be opened.
//
// ctx bounds Dial only, not what is done with the Client.
//
// A connection that ends later is made again, at once while a lease needs one or
// a call waits, and otherwise by the next call. What was asked is asked again
// there: calls notice nothing but the pause, except for Force and Admit, which fail if
// they were under way. Without a connection Lock and LockAll
// wait as for a holder, until their context is done or WithWait is over; all
// other calls (and those for at least so long) until WithPatience is over since the
// connection ended, and from then on for one attempt. The error matches
// ErrUnavailable then, or what the daemon refuses the connection with.
func Dial(ctx context.Context, path string, opts ...DialOption) (*Client, error) {
	path = socketPath(path)
	c := newClient(func(ctx context.Context) (net.Conn, error) { return dialUnix(ctx, path) }, boottime.Exact)
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
		dial: dial, clock: clock, patience: defaultPatience, born: time.Now(),
		calls: newCallTable(), done: make(chan struct{}), closing: make(chan struct{}), needConn: make(chan struct{}, 1), releasingChanged: make(chan struct{}, 1),
		idPrefix: strconv.FormatUint(rand.Uint64()>>24, 36) + ".", leases: make(map[string]*Lease),
	}
	c.ctx, c.cancelCtx = context.WithCancel(context.Background())
	return c
}

// open makes the first connection.
func (c *Client) open(ctx context.Context) error {
	l, err := c.newLink(ctx, 1)
	if err != nil {
		c.cancelCtx()
		return err
	}
	c.connectedAt = time.Now()
	c.link.Store(l)
	c.background.Go(func() { c.run(l) })
	return nil
}

func socketPath(path string) string {
	if path == "" {
		path = os.Getenv("REDLOCK_SOCKET")
	}
	if path == "" {
		path = DefaultSocket
	}
	return path
}

// Done is closed by Close, and by nothing else: the end of a connection is not
// that of the Client. See Err.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why there is no connection just now, nil if there is one. It matches
// ErrClosed after Close, ErrShutdown where the daemon said that it stops, or what
// a new connection was refused with last, mostly ErrUnavailable.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connErr
}

// Reconnects is how often a connection was made after the first one.
func (c *Client) Reconnects() uint64 { return c.reconnects.Load() }

// Restarts is how often the daemon was restarted and kept the connection (BACK).
func (c *Client) Restarts() uint64 { return c.restarts.Load() }

// Resumed is how many leases were taken over by a new connection.
func (c *Client) Resumed() uint64 { return c.resumed.Load() }

// Close ends the connection and waits for all that the Client has started. Its
// leases end, their contexts with a cause that matches ErrLost and ErrClosed; then
// the daemon gives their locks back, but for those with HoldTTL, which stay
// until their ttl is over, and those with HoldPID, which stay with their process.
// Where there is no connection just then, those with HoldConn stay for their
// validity. Calls that wait return an error that matches
// ErrClosed. Only the first Close does anything; it returns nil.
//
// A lock that was given up before, and may have been granted in that moment, is given back
// before that, so that it stays neither with the process nor for its linger, and so is one
// that somebody waits for just then: Close waits for the daemon's word, a second at most.
func (c *Client) Close() error {
	c.shut.Do(func() { close(c.closing) })
	c.awaitReleases()
	c.cancelCtx()
	c.endLeases(ErrClosed) // before the daemon sees the end of the connection
	if l := c.link.Load(); l != nil {
		l.hangUp() // ends the reader, which ends the rest
	}
	c.background.Wait()
	return nil
}

// awaitGiven waits for what is being given back that may outlast the connection, with HoldConn
// by its linger.
func (c *Client) awaitReleases() {
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	for c.isReleasing() {
		select {
		case <-c.releasingChanged:
		case <-timer.C:
			return
		}
	}
}

// isGiving is false where there is no daemon to hear of it.
func (c *Client) isReleasing() bool {
	stays := c.calls.mayOutlast()
	c.mu.Lock()
	defer c.mu.Unlock()
	return (stays || c.releasing > 0) && c.connErr == nil
}

// gives counts what is being given back, or may have to be.
func (c *Client) releaseStarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releasing++
}

func (c *Client) releaseDone() {
	c.mu.Lock()
	c.releasing--
	c.mu.Unlock()
	c.checkReleases()
}

// lookAtGiven wakes awaitGiven.
func (c *Client) checkReleases() {
	select {
	case c.releasingChanged <- struct{}{}:
	default: // it is about to look
	}
}

func (c *Client) closed() bool { return c.ctx.Err() != nil }

// spawn runs f on a goroutine that Close waits for. f ends with the connection.
// It is not run once all is over.
func (c *Client) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished {
		c.background.Go(f) // run is still counted: never from zero while Close waits
	}
}

// run reads one connection after the other until Close, and then ends all that
// depends on them.
func (c *Client) run(l *link) {
	for l != nil {
		c.connectionEnded(l, l.readLines())
		l = c.reconnect()
	}
	c.mu.Lock()
	c.connErr, c.finished = ErrClosed, true
	if c.expiryTimer != nil {
		c.expiryTimer.Stop()
	}
	c.mu.Unlock()
	for _, cl := range c.calls.all() {
		c.deliver(cl, stateFailed)
	}
	for _, l := range c.allLeases() {
		l.endWithoutUnlock(lostError(l.name, "", ErrClosed))
	}
	close(c.done)
}

// cutOff settles the end of a connection. What the daemon keeps without one, or
// until it is resumed, goes on.
func (c *Client) connectionEnded(l *link, err error) {
	over := l.endError(err)
	if l.isEndedHere(err) && !c.closed() {
		c.endLeases(over) // before the daemon sees that end, and gives them back
	}
	l.hangUp()
	l.out.stop(over)
	c.mu.Lock()
	c.connErr, c.lostAt, c.patienceOver = over, time.Now(), false
	c.mu.Unlock()
	c.checkReleases()
	c.detachLeases()
	c.link.Store(nil)
	c.lastEnded.Store(l.number)
	l.end()
	c.calls.dropResendTags()
	c.dropAbandoned()
	c.failSentOnce(over)
	switch {
	case c.closed():
	case errors.Is(err, errProtocol):
		c.failAll(over)
	default:
		c.failExpired(false)
	}
}

// endLeases ends the leases that the daemon gives back when it sees the end of
// the connection.
func (c *Client) endLeases(over error) {
	for _, l := range c.allLeases() {
		l.endWithConnection(over)
	}
}

func (l *Lease) endWithConnection(over error) {
	if l.hold == HoldConn {
		l.endWithoutUnlock(lostError(l.name, "", over))
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

// unavailable is err, made to match ErrUnavailable where it tells nothing else.
func asUnavailable(err error) error {
	for _, known := range []error{ErrUnavailable, ErrShutdown, ErrDenied, ErrLimit, ErrInvalid, ErrInternal, ErrClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// known is the lease with an ID that this Client has already, or else the one that is given,
// which it has from now on.
func (c *Client) leaseByID(id string, otherwise *Lease) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.leases[id]; own != nil || otherwise == nil {
		return own
	}
	c.leases[id] = otherwise
	return otherwise
}
