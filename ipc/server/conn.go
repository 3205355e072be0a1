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
	raw      syscall.RawConn // nil if nc is no socket
	peer     Peer
	out      output
	inflight inflight
	wg       sync.WaitGroup // counts Works and goroutines that write; finish waits for it

	stopping          atomic.Bool // the server stops: refuse new requests, close when idle
	freezing          atomic.Bool // the server freezes; if this connection is not kept, stopping is set too
	writesLastAnswers atomic.Bool // no request begins any more, and the last answers are being written
	isInputClosed     atomic.Bool // no more input is read
	lineTimedOut      atomic.Bool // a line was not ended in time: the connection ends
	isWaiting         atomic.Bool // the reading goroutine waits for a call or for the output
	wakeup            chan struct{}

	// The fields below belong to the reading goroutine.
	session        Session
	journal        Journal // nil if the session is no Journal; never changes
	recordedUnread recordedUnread
	in             input
	fairness       fairness
	replays        []replay // requests recorded before a restart; they come before the queue
	queue          lineQueue
	reading        bool
	isCorked       bool
	wasBlocked     bool // step found reading paused
	isClientGone   bool // the client reads no more answers
}

// newConn makes a connection. Its owner must call fairness.end.
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
		othersAnswer: func() bool { return c.inflight.runningWorks.Load() > 1 },
		onIdle:       c.notify,
		onFailure:    c.outputFailed,
	}
	return c
}

// rawOf returns the socket for I/O that does not block, or nil if nc is no socket.
func rawOf(nc net.Conn) syscall.RawConn {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil // it was closed; the first read reports that
	}
	return raw
}

// Session returns what Server.Open made, or nil before that.
func (c *Conn) Session() Session { return c.session }

// Peer returns the process at the other end at the time it connected.
func (c *Conn) Peer() Peer { return c.peer }

// PeerPIDFD returns a pidfd of the process that connected. The caller closes it. It refers to that
// process even if another process has the same pid by now. The error matches errors.ErrUnsupported
// if the kernel (before 6.5) or the connection has no pidfd. It matches unix.ESRCH (before 6.16
// also unix.EINVAL) if the process has ended. Any other error means that the system lacks a
// resource.
func (c *Conn) PeerPIDFD() (int, error) { return peerPIDFD(c.raw) }

// SyscallConn gives access to the socket's descriptor, so that a duplicate can be stored elsewhere.
// Do not read, write or configure the socket with it. If the server ends the connection, it ends
// for duplicates too; if the process ends, it does not. SyscallConn fails if the connection is not
// a socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if c.raw == nil {
		return nil, fmt.Errorf("the descriptor of a %T: %w", c.nc, errors.ErrUnsupported)
	}
	return c.raw, nil
}

// Unread returns how many bytes of answers and events wait to be written. It does not count the
// bytes in the socket.
func (c *Conn) Unread() int { return int(c.out.size.Load()) }

// Send sends an event, between replies. It copies r and does not block.
func (c *Conn) Send(r *ipc.Response) { c.out.append(nil, r) }

// Cancel ends the context of the request with that tag, with ErrCancelled. It returns false if
// there is none.
func (c *Conn) Cancel(tag string) bool { return c.inflight.cancel(tag, ErrCancelled) }

// WasCut reports whether the server ended the connection because of what the client did or failed
// to do. The client may be alive, and not know it yet.
func (c *Conn) WasCut() bool {
	err := c.out.failure()
	return c.lineTimedOut.Load() || err != nil && !isGone(err)
}

// HungUp reports whether the peer has closed both directions, even if earlier data is still unread.
// It returns false if that cannot be determined.
func (c *Conn) HungUp() bool { return c.raw != nil && c.in.closedByPeer() }

// CloseAfterReplies ends the connection as if the client had closed its side. Requests that were
// read before are answered; nothing after them is read. See Call.Quit.
func (c *Conn) CloseAfterReplies() {
	c.isInputClosed.Store(true)
	c.wake()
}

// serve runs the connection on its reading goroutine, from start to end. read_loop.go handles its
// lines.
func (c *Conn) serve() {
	// A new connection is charged for, and delayed if its user took too much.
	c.fairness.extraCost = openCost
	for c.fairness.setDue(); c.fairness.isDue() && c.mayBeDelayed(); {
		c.waitForShare()
	}
	if c.open() != nil {
		c.finish()
		return
	}
	c.run()
}

// run reads and begins requests (loop), and ends the connection. It leaves a frozen connection as
// it is.
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

// open makes the session. If that fails, it sends the error to the client.
func (c *Conn) open() error {
	err := error(&ipc.Error{Code: ipc.CodeInternal, Text: defectText}) // used if Open panics
	c.guard(func() { c.session, err = c.server.Open(c) })
	if err != nil {
		c.reject("", err)
		return err
	}
	c.journal, _ = c.session.(Journal)
	return nil
}

// stop begins the end, as Server.Shutdown describes.
func (c *Conn) stop() {
	c.stopping.Store(true)
	c.inflight.cancelAll(ErrShutdown)
	c.wake()
}

func (c *Conn) sayBye() {
	c.server.mu.Lock()
	bye := c.server.bye
	c.server.mu.Unlock()
	if c.lineTimedOut.Load() {
		c.reject("", ipc.Errorf(ipc.CodeSyntax, "a line was not ended within %v: end each line with LF; this connection ends now", c.server.lineTimeout()))
		if bye == nil {
			bye = c.server.Bye
		}
	}
	if bye != nil {
		c.Send(bye(c.session))
	}
}

// drain waits until all output is written, or cannot be, and ends the output.
func (c *Conn) drain() {
	c.isWaiting.Store(true)
	c.uncork()
	for !c.out.close() {
		c.waitForWakeup()
	}
}

// cutOff ends the connection at once.
func (c *Conn) cutOff(why error) {
	if c.out.stop(why) {
		c.outputFailed(why)
	}
}

// outputFailed is called once, on any goroutine. The server still reads what the client sent before
// it closed. It reports the cut before it closes the connection: if the process is killed in
// between, the connection has not ended yet.
func (c *Conn) outputFailed(err error) {
	c.inflight.cancelAll(ErrGone)
	if !isGone(err) {
		c.server.dropped(c, err)
		c.close() // err is the reason; another error does not matter
	}
	c.wake()
}

// close ends the connection, also for duplicates of the descriptor in other processes. It ignores
// errors, because nothing can be done about them.
func (c *Conn) close() {
	if c.raw != nil {
		c.raw.Control(shutdown)
	}
	c.nc.Close()
}

// isGone reports whether a write failed because the peer has closed.
func isGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe)
}

// guard calls f, code of the session. A panic in it ends nothing else.
func (c *Conn) guard(f func()) (panicked bool) {
	defer c.recovered(&panicked)
	f()
	return false
}

// recovered recovers from a panic of the session and reports it. It must be deferred.
func (c *Conn) recovered(panicked *bool) {
	if what := recover(); what != nil {
		*panicked = true
		c.server.defect(c, what, debug.Stack())
	}
}
