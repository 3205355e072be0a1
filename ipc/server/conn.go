package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redlockd/redlockd/ipc"
)

// Conn is the server's side of one connection.
type Conn struct {
	server   *Server
	nc       net.Conn
	raw      syscall.RawConn // nil where nc is no socket
	peer     Peer
	out      output
	inflight inflight
	wg       sync.WaitGroup // Works, and writing

	stopping     atomic.Bool // the server is: refuse what is begun, end when idle
	freezing     atomic.Bool // the server is, unless this connection is not kept: then it is stopping, too
	lastAnswers  atomic.Bool // nothing is begun any more, its last answers are on their way
	quitting     atomic.Bool // no more is read
	lineTimedOut atomic.Bool // a line was not ended in time: the connection ends
	wantsNews    atomic.Bool // the reading goroutine waits for news of calls or of output
	wakeup       chan struct{}

	// The rest belongs to the goroutine that reads.
	session        Session
	journal        Journal // nil: the session is none; does not change
	recordedUnread recordedUnread
	in             input
	fairness       fairness
	replays        []replay // noted before a restart, before all that waits
	queue          lineQueue
	reading        bool
	corked         bool
	wasBlocked     bool // reading was paused when advance last looked
	clientGone     bool // the client reads no more
}

// newConn makes a connection, for which pace.end has to be called.
func newConn(s *Server, nc net.Conn) *Conn {
	raw := rawOf(nc)
	c := &Conn{
		server:  s,
		nc:      nc,
		raw:     raw,
		peer:    peerOf(raw),
		in:      newInput(nc, raw),
		wakeup:  make(chan struct{}, 1),
		reading: true,
	}
	c.fairness = s.scheduler().newFairness(c.peer)
	c.out = output{
		conn:         nc,
		raw:          raw,
		pause:        orDefault(s.PauseOutput, min(DefaultPauseOutput, orDefault(s.MaxOutput, DefaultMaxOutput)/2)),
		limit:        orDefault(s.MaxOutput, DefaultMaxOutput),
		timeout:      orDefault(s.WriteTimeout, DefaultWriteTimeout),
		spawn:        c.wg.Go,
		othersAnswer: c.inflight.severalWorksRun,
		ended:        c.notify,
		failed:       c.outputFailed,
	}
	return c
}

// rawOf is for I/O that does not block; nil where nc is no socket.
func rawOf(nc net.Conn) syscall.RawConn {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil // it was closed: the first read tells
	}
	return raw
}

// Session is what Server.Open made; nil before it has.
func (c *Conn) Session() Session { return c.session }

// Peer is the process at the other end when it connected.
func (c *Conn) Peer() Peer { return c.peer }

// PeerPIDFD is a pidfd of the process that connected, the caller's to close. It
// is of that very process: its number may have become another's since. The error
// matches errors.ErrUnsupported where the kernel (before 6.5) or the connection
// has none to give, and unix.ESRCH (before 6.16 also unix.EINVAL) where the process is
// gone; any other means that the system is short of something.
func (c *Conn) PeerPIDFD() (int, error) { return peerPIDFD(c.raw) }

// SyscallConn gives access to the socket's descriptor, so that a duplicate can
// be stored elsewhere: nothing is to be read, written or set with it. The
// connection ends for duplicates too when the server ends it, but not when the
// process does. It fails where the connection is no socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if c.raw == nil {
		return nil, fmt.Errorf("the descriptor of a %T: %w", c.nc, errors.ErrUnsupported)
	}
	return c.raw, nil
}

// Unread is how many bytes of answers and events the client has not taken yet, but for
// what the socket holds.
func (c *Conn) Unread() int { return int(c.out.size.Load()) }

// Send sends an event, between replies. It copies r and does not block.
func (c *Conn) Send(r *ipc.Response) { c.out.append(nil, r) }

// Cancel ends the context of the request with that tag, with ErrCancelled. It
// is false if none is in flight.
func (c *Conn) Cancel(tag string) bool { return c.inflight.cancel(tag, ErrCancelled) }

// WasCut tells whether the server ended the connection for what the client did
// or did not do: the client may be alive, and not know yet.
func (c *Conn) WasCut() bool {
	err := c.out.failure()
	return c.lineTimedOut.Load() || err != nil && !isGone(err)
}

// HungUp tells whether the other side has closed altogether, be it that what it had sent
// before is not read yet. False where that cannot be known.
func (c *Conn) HungUp() bool { return c.raw != nil && c.in.closedByPeer() }

// CloseAfterReplies has the connection end as if the client's input had: what
// was begun or read before is answered, and nothing after it is taken. See Call.Quit.
func (c *Conn) CloseAfterReplies() {
	c.quitting.Store(true)
	c.wake()
}

// serve is the connection's life, on the goroutine that reads it.
func (c *Conn) serve() {
	c.waitBeforeOpen()
	if c.open() != nil {
		c.finish()
		return
	}
	c.run()
}

// live is what follows open. A frozen connection is left as it is.
func (c *Conn) run() {
	c.fairness.resume()
	if c.loop() {
		return
	}
	c.sayBye()
	c.finish()
	c.guard(c.session.Close)
}

// finish waits for the last answers and Works, and closes the connection.
func (c *Conn) finish() {
	c.fairness.pause()
	c.drain()
	c.close()
	c.wg.Wait()
	c.fairness.resume()
}

// open makes the session, or tells the client why there is none.
func (c *Conn) open() error {
	err := error(&ipc.Error{Code: ipc.CodeInternal, Text: defectText}) // unless Open says something else
	c.guard(func() { c.session, err = c.server.Open(c) })
	if err != nil {
		c.reject("", err)
		return err
	}
	c.journal, _ = c.session.(Journal)
	return nil
}

// stop begins the end, as Server.Shutdown says.
func (c *Conn) stop() {
	c.stopping.Store(true)
	c.inflight.cancelAll(ErrShutdown)
	c.wake()
}

func (c *Conn) sayBye() {
	bye := c.server.farewellFunc()
	if c.lineTimedOut.Load() {
		c.reject("", c.server.lineTimeoutError())
		if bye == nil {
			bye = c.server.Bye
		}
	}
	if bye != nil {
		c.Send(bye(c.session))
	}
}

// drain waits until all output is written, or cannot be, and ends it.
func (c *Conn) drain() {
	c.wantsNews.Store(true)
	c.uncork()
	for !c.out.close() {
		c.waitForNews()
	}
}

// cut ends the connection without waiting for anything.
func (c *Conn) cutOff(why error) {
	if c.out.stop(why) {
		c.outputFailed(why)
	}
}

// outputFailed is called once, on any goroutine. What a client sent before it
// closed is still read. That the connection is cut is told before it ends: who is killed
// in between has not said yet that it was not the client's doing.
func (c *Conn) outputFailed(err error) {
	c.inflight.cancelAll(ErrGone)
	if !isGone(err) {
		c.server.dropped(c, err)
		c.close() // the reason is err
	}
	c.wake()
}

// close ends the connection, also where another process has a duplicate of the
// descriptor. Errors have nobody left to matter to.
func (c *Conn) close() {
	if c.raw != nil {
		c.raw.Control(shutdown)
	}
	c.nc.Close()
}

// isGone tells whether writing failed because the other side has closed.
func isGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe)
}

// guard calls what belongs to the session, whose panics end nothing else.
func (c *Conn) guard(f func()) (panicked bool) {
	defer c.recovered(&panicked)
	f()
	return false
}

// recovered is to be deferred.
func (c *Conn) recovered(panicked *bool) {
	if what := recover(); what != nil {
		*panicked = true
		c.server.defect(c, what, debug.Stack())
	}
}
