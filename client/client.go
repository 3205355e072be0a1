package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// DefaultSocket is where redlockd listens unless told otherwise.
const DefaultSocket = "/run/redlockd/redlockd.sock"

// protocolVersion is what is spoken here.
const protocolVersion = "1"

// readBuffer holds many replies, and more than the longest line.
const readBuffer = 4 * ipc.MaxLine

// Client is one connection to redlockd. It is safe for concurrent use, and
// meant to be shared: a process needs one.
type Client struct {
	conn  net.Conn
	clock func() time.Duration // boottime, but for tests
	out   *sender
	calls *table
	done  chan struct{} // closed when the connection is over, and its leases ended

	owners atomic.Uint64 // how many owners there have been

	background sync.WaitGroup // see spawn

	mu      sync.Mutex        // guards what follows
	leases  map[string]*Lease // by id: held, or to be released yet
	over    error             // why the connection is over; nil while it lives
	closed  bool              // Close was called
	bye     bool              // the daemon said that it is stopping
	notice  *Error            // why the daemon will hang up on a new connection
	greeted bool              // it has answered HELLO
}

// Dial connects to the daemon's socket at path and makes sure that it speaks
// this protocol. An empty path is $REDLOCK_SOCKET, or else DefaultSocket. It
// blocks until the daemon has answered or ctx is done: a daemon that hangs
// accepts connections and answers none. The error matches ErrUnavailable where
// nobody listens and ErrDenied where the socket may not be opened.
//
// ctx bounds Dial only, not what is done with the Client.
func Dial(ctx context.Context, path string) (*Client, error) {
	path = socketPath(path)
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, dialError(ctx, path, err)
	}
	c, err := connect(ctx, conn, boottime)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	return c, nil
}

// connect makes a Client of a connection, which it closes if that fails.
func connect(ctx context.Context, conn net.Conn, clock func() time.Duration) (*Client, error) {
	c := &Client{conn: conn, clock: clock, calls: newTable(), done: make(chan struct{}), leases: make(map[string]*Lease)}
	c.out = newSender(conn, c.spawn, c.calls.several)
	c.background.Go(c.read)
	if err := c.hello(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
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

// dialError says what can be done about a socket that cannot be opened.
func dialError(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ended("dial", path, ctx)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("dial %s: %w: this user needs the group of the socket: %w", path, ErrDenied, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("dial %s: %w: nobody listens there, is redlockd running? %w", path, ErrUnavailable, err)
	}
	return fmt.Errorf("dial %s: %w: %w", path, ErrUnavailable, err)
}

// hello makes sure that the other side speaks version 1.
func (c *Client) hello(ctx context.Context) error {
	return c.ask(ctx, ipc.VerbHello, "", protocolVersion, func(*call) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.greeted = true
	})
}

// Ping asks the daemon for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	return c.ask(ctx, ipc.VerbPing, "", "", func(*call) {})
}

// Done is closed when the connection is over: after Close, and when the daemon
// stopped or hung up. The Client is of no more use then.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the connection is over, nil as long as it is not. It matches
// ErrClosed after Close, ErrShutdown if the daemon was stopped, ErrUnavailable
// otherwise.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Close ends the connection and waits for all that the Client has started. Its
// leases end, their contexts with a cause that matches ErrLost and ErrClosed;
// the daemon gives their locks back, but for those with HoldTTL, which stay
// until their ttl is over, and those with HoldPID, which stay with their process. Calls that wait return an error that matches
// ErrClosed. Only the first Close does anything; it returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.hangUp() // ends the reader, which ends the rest
	c.background.Wait()
	for _, l := range c.allLeases() {
		l.drop(lost(l.name, "", ErrClosed))
	}
	return nil
}

// spawn runs f on a goroutine that Close waits for. f ends with the connection.
// It is not run once that is over.
func (c *Client) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		c.background.Go(f) // the reader is still counted: never from zero while Close waits
	}
}

// read takes what the daemon says until the connection ends, and then ends all
// that depends on it.
func (c *Client) read() {
	err := c.readLines()
	c.hangUp()
	over := c.setOver(err)
	c.out.stop(over)
	for _, cl := range c.calls.all() {
		c.deliver(cl, dead)
	}
	c.endLeases(over)
	close(c.done)
}

// setOver settles why the connection is over.
func (c *Client) setOver(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		c.over = ErrClosed
	case c.notice != nil:
		c.over = fmt.Errorf("%w: it hung up: %w", ErrUnavailable, c.notice)
	case c.bye:
		c.over = fmt.Errorf("%w: it said BYE", ErrShutdown)
	case errors.Is(err, io.EOF):
		c.over = fmt.Errorf("%w: it hung up: stopped or killed?", ErrUnavailable)
	default:
		c.over = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return c.over
}

// endLeases ends the leases that the end of the connection ends: those that the
// daemon gave back when it saw that end. After BYE it gives none back, and what
// is held for its ttl or by a process it keeps: these end by their own timers.
func (c *Client) endLeases(over error) {
	c.mu.Lock()
	kept := c.bye && !c.closed
	c.mu.Unlock()
	for _, l := range c.allLeases() {
		if !kept && l.hold == HoldConn {
			l.drop(lost(l.name, "", over))
		}
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

// readLines returns why there are no more lines.
func (c *Client) readLines() error {
	in := bufio.NewReaderSize(newInput(c.conn), readBuffer)
	var r ipc.Response
	for {
		line, err := in.ReadSlice('\n')
		if err == nil {
			err = c.hear(line[:len(line)-1], &r)
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if err != nil {
			return fmt.Errorf("it does not speak the protocol: %w: %.80q", err, line)
		}
	}
}
