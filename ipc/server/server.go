package server

import (
	"context"
	"log"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Defaults of a Server's bounds.
const (
	DefaultMaxInFlight  = 4096
	DefaultMaxQueued    = 64 << 10
	DefaultPauseOutput  = 2 * flushSize
	DefaultMaxOutput    = 1 << 20
	DefaultWriteTimeout = 30 * time.Second
)

// Server serves connections, each with one goroutine and one for each Work that
// runs. Its fields are set before it is used; the zero of a bound is its default.
type Server struct {
	// Open makes the session of a new connection, on the connection's goroutine.
	// If it fails the client is told why, with the code of an *Error or else
	// INTERNAL, and the connection is closed.
	Open func(*Conn) (Session, error)

	// Admit is asked on the accepting goroutine, before Open, so that whoever opens
	// connections by the thousand costs no more than that one's time: those refused are
	// told why, as by Open, and closed. It must not block, nor need the peer's groups.
	// Open follows once for each nil, or Dismissed, but for a connection that Shutdown
	// comes before. It may be nil.
	Admit func(Peer) error
	// Dismissed is told of who was admitted and is not served after all: the system is
	// short of something. It may be nil.
	Dismissed func(Peer)

	MaxInFlight  int           // requests with a tag unanswered at once on a connection; more are refused with LIMIT
	MaxQueued    int           // bytes of requests without a tag that wait for their turn; then reading pauses
	PauseOutput  int           // bytes of unread answers; then reading pauses: what is under way may cause more. Default: at most half of MaxOutput
	MaxOutput    int           // bytes of unread answers; a client that still causes more is cut off
	LineTimeout  time.Duration // in which a line that was begun has to end; who is later is told, and cut off
	WriteTimeout time.Duration // in which a client has to read what does not fit into the socket's buffer

	// Defect is told of panics in a session and of requests that it did not
	// answer. If it is nil, they are logged.
	Defect func(c *Conn, what any, stack []byte)
	// Refused is told of every ERR, by whomever it is answered. It must not block,
	// and may be nil.
	Refused func(ipc.Code)
	// Bye says what is sent last on a connection that is ended for a line that was not
	// ended. Nil: nothing.
	Bye func(Session) *ipc.Response
	// Answered is told of the answers to requests that a session has begun, before they
	// are sent. It must not block nor keep what it is given, and may be nil.
	Answered func(*Conn, *Call, *ipc.Response)
	// Dropped is told which connections the server had to cut, and why. It may be nil.
	Dropped func(c *Conn, why error)
	// HeldBack is told whenever a connection has to wait because its user takes more
	// than his share beside others. It must not block, and may be nil.
	HeldBack func()
	// AcceptFailed is told of errors that Serve goes on after. It may be nil.
	AcceptFailed func(err error, pause time.Duration)

	workers         workers[job]
	sharedScheduler *scheduler // made with the first connection
	schedulerOnce   sync.Once

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	bye       func(Session) *ipc.Response // says what is sent last on a connection; set when stopping begins
	stopping  bool                        // no connection is added any more
	empty     chan struct{}               // closed when the last connection is over; made when stopping begins
	freezing  *freezeState                // nil: the server stops by Shutdown, if at all
}

// ServeConn serves one connection until it is over, and closes it. During and
// after Shutdown it closes it at once.
func (s *Server) ServeConn(nc net.Conn) {
	if c := s.add(nc); c != nil {
		s.serve(c)
	}
}

func (s *Server) serve(c *Conn) {
	defer s.remove(c)
	c.serve()
}

// Shutdown stops the server. No more connections are accepted; requests not yet
// begun are refused with SHUTDOWN; the contexts of running ones end with
// ErrShutdown. As soon as its running requests are answered, each connection
// gets what bye says of its session (nil: nothing) as its last line and is closed.
// Shutdown returns when all are over. If ctx is done before, it cuts the rest and
// returns ctx's error without waiting for their Works. The owner closes the listeners.
func (s *Server) Shutdown(ctx context.Context, bye func(Session) *ipc.Response) error {
	empty := s.stop(bye)
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	for _, c := range s.all() {
		c.cutOff(ErrShutdown)
	}
	return ctx.Err()
}

// stop begins the end. The channel is closed when no connection is left.
func (s *Server) stop(bye func(Session) *ipc.Response) <-chan struct{} {
	s.mu.Lock()
	if !s.stopping {
		s.setStopping(bye)
	}
	s.mu.Unlock()
	for _, c := range s.all() {
		c.stop()
	}
	return s.empty
}

// setStopping ends accepting. It needs mu.
func (s *Server) setStopping(bye func(Session) *ipc.Response) {
	s.stopping, s.bye, s.empty = true, bye, make(chan struct{})
	if len(s.conns) == 0 {
		close(s.empty)
	}
	for l := range s.listeners {
		interrupt(l)
	}
}

func (s *Server) all() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners == nil {
		s.listeners = make(map[net.Listener]struct{})
	}
	s.listeners[l] = struct{}{}
	return !s.stopping
}

func (s *Server) unlisten(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// add makes a connection known, so that Shutdown ends it. Once that has begun it
// closes nc instead, and returns nil.
func (s *Server) add(nc net.Conn) *Conn {
	c := newConn(s, nc)
	if s.enter(c) {
		return c
	}
	nc.Close() // nothing was said on it
	c.fairness.end()
	return nil
}

// enter is false if stopping has begun.
func (s *Server) enter(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	if s.conns == nil {
		s.conns = make(map[*Conn]struct{})
	}
	s.conns[c] = struct{}{}
	return true
}

// remove forgets a connection, which is over or frozen, and with the last one the
// idle workers.
func (s *Server) remove(c *Conn) {
	c.fairness.end()
	if s.wasLast(c) {
		s.workers.release()
	}
}

func (s *Server) wasLast(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.conns[c]; !there {
		return false // frozen, and forgotten then
	}
	delete(s.conns, c)
	if s.freezing != nil {
		s.freezing.ended()
	}
	if len(s.conns) > 0 {
		return false
	}
	if s.stopping {
		close(s.empty)
	}
	return true
}

// lastWords says what a connection gets in the end; nil for nothing.
func (s *Server) farewellFunc() func(Session) *ipc.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bye
}

func (s *Server) defect(c *Conn, what any, stack []byte) {
	if s.Defect == nil {
		log.Printf("ipc: defect in a session: %v\n%s", what, stack)
		return
	}
	s.Defect(c, what, stack)
}

func (s *Server) dropped(c *Conn, why error) {
	if s.Dropped != nil {
		s.Dropped(c, why)
	}
}

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// divided is what the server's users share.
func (s *Server) scheduler() *scheduler {
	s.schedulerOnce.Do(func() { s.sharedScheduler = newScheduler(runtime.GOMAXPROCS(0), s.HeldBack) })
	return s.sharedScheduler
}

// interrupt ends an Accept that waits, and all further ones.
func interrupt(l net.Listener) {
	if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(past) == nil {
		return
	}
	l.Close() // its error would change nothing: the listener is given up
}

// past is a deadline that is over.
var past = time.Unix(1, 0)
