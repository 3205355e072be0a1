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

// Server serves connections. Each has one goroutine, and one for each Work that runs. Set the
// fields before you use it. A bound of zero means its default.
type Server struct {
	// Open makes the session of a new connection, on the connection's goroutine. If it fails, the
	// client gets the error, with the code of an *ipc.Error or else INTERNAL, and the connection is
	// closed.
	Open func(*Conn) (Session, error)

	// Admit decides whether to serve a client. It is called on the accepting goroutine, before Open,
	// so that a client that opens thousands of connections uses the time of one goroutine only. If
	// it returns an error, the client gets the error, as with Open, and the connection is closed.
	// Admit must not block, nor need the peer's groups. For each nil, either Open or Dismissed
	// follows, unless Shutdown comes first. It may be nil.
	Admit func(Peer) error
	// Dismissed is called for a client that was admitted but cannot be served, because the system
	// lacks a resource. It may be nil.
	Dismissed func(Peer)

	MaxInFlight  int           // unanswered requests with a tag on one connection; more are refused with LIMIT
	MaxQueued    int           // bytes of requests without a tag in the queue; with more, reading pauses
	PauseOutput  int           // bytes of unread answers; with more, reading pauses, but requests in progress may add more. Default: at most half of MaxOutput
	MaxOutput    int           // bytes of unread answers; with more, the client is cut
	LineTimeout  time.Duration // time from the first byte of a line to its end; then the client gets an error, and is cut
	WriteTimeout time.Duration // time in which a client must read what does not fit into the socket's buffer

	// Defect is called for panics in a session, and for requests that a session did not answer. If
	// it is nil, they are logged.
	Defect func(c *Conn, what any, stack []byte)
	// Refused is called for every ERR, of the session or of the server. It must not block, and may
	// be nil.
	Refused func(ipc.Code)
	// Bye returns the last line for a connection that ends because a line timed out. Nil: no line is
	// sent.
	Bye func(Session) *ipc.Response
	// Answered is called with the answers to requests that a session has begun, before they are
	// sent. It must not block nor keep its arguments, and may be nil.
	Answered func(*Conn, *Call, *ipc.Response)
	// Dropped is called with the reason for each connection that the server has to cut. It may be
	// nil.
	Dropped func(c *Conn, why error)
	// HeldBack is called whenever a connection is delayed because its user takes more than its share
	// while other users are active. It must not block, and may be nil.
	HeldBack func()
	// AcceptFailed is called for errors after which Serve continues. It may be nil.
	AcceptFailed func(err error, pause time.Duration)

	workers         workers[job]
	sharedScheduler *scheduler // made for the first connection
	schedulerOnce   sync.Once

	mu        sync.Mutex // guards the fields below; no other mutex is taken inside it
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	bye       func(Session) *ipc.Response // returns the last line of a connection; set when stopping begins
	stopping  bool                        // no connection is added any more
	empty     chan struct{}               // closed when the last connection has ended; made when stopping begins
	freezing  *freezeState                // nil unless Freeze was called
}

// ServeConn serves one connection until it ends, and closes it. During and after Shutdown it closes
// it at once.
func (s *Server) ServeConn(nc net.Conn) {
	if c := s.add(nc); c != nil {
		s.serve(c)
	}
}

func (s *Server) serve(c *Conn) {
	defer s.remove(c)
	c.serve()
}

// Shutdown stops the server. It accepts no more connections, refuses requests that have not begun
// with SHUTDOWN, and ends the contexts of running ones with ErrShutdown. Once its running requests
// are answered, each connection gets what bye returns (nil: nothing) as its last line, and is
// closed. Shutdown returns when all have ended. If ctx is done first, it cuts the rest and returns
// ctx's error without waiting for their Works. The caller of Serve closes the listeners.
func (s *Server) Shutdown(ctx context.Context, bye func(Session) *ipc.Response) error {
	s.mu.Lock()
	if !s.stopping {
		s.setStoppingLocked(bye)
	}
	s.mu.Unlock()
	for _, c := range s.allConns() {
		c.stop()
	}
	select {
	case <-s.empty:
		s.mu.Lock()
		frozen := s.freezing != nil
		s.mu.Unlock()
		if !frozen { // otherwise workers may still run Works of frozen connections
			s.workers.wait()
		}
		return nil
	case <-ctx.Done():
	}
	for _, c := range s.allConns() {
		c.cutOff(ErrShutdown)
	}
	return ctx.Err()
}

// setStoppingLocked ends accepting. The caller holds mu.
func (s *Server) setStoppingLocked(bye func(Session) *ipc.Response) {
	s.stopping, s.bye, s.empty = true, bye, make(chan struct{})
	if len(s.conns) == 0 {
		close(s.empty)
	}
	for l := range s.listeners {
		interrupt(l)
	}
}

func (s *Server) allConns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// add registers a connection, so that Shutdown ends it. Once stopping has begun, it closes nc
// instead and returns nil.
func (s *Server) add(nc net.Conn) *Conn {
	c := newConn(s, nc)
	if s.register(c) {
		return c
	}
	nc.Close() // nothing was sent on it
	c.fairness.end()
	return nil
}

// register adds c. It returns false if stopping has begun.
func (s *Server) register(c *Conn) bool {
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

// remove removes a connection that has ended or is frozen. With the last one it releases the idle
// workers.
func (s *Server) remove(c *Conn) {
	c.fairness.end()
	s.mu.Lock()
	_, there := s.conns[c] // otherwise it was frozen, and removed before
	delete(s.conns, c)
	last := there && len(s.conns) == 0
	if last && s.stopping {
		close(s.empty)
	}
	s.mu.Unlock()
	if last {
		s.workers.release()
	}
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

// scheduler returns the scheduler of the server's connections.
func (s *Server) scheduler() *scheduler {
	s.schedulerOnce.Do(func() { s.sharedScheduler = newScheduler(runtime.GOMAXPROCS(0), s.HeldBack) })
	return s.sharedScheduler
}

// interrupt ends a waiting Accept, and all later ones.
func interrupt(l net.Listener) {
	if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(longAgo) == nil {
		return
	}
	l.Close() // its error does not matter: the listener is not used again
}

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)
