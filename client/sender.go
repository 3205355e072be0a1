package client

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

const (
	// maxPending bounds the requests that a daemon which does not read leaves unwritten.
	maxPending = 1 << 20
	// maxSpare is the largest buffer that is kept for the next write.
	maxSpare = 64 << 10
	// lastWords is how long answers are read after a write failed, or the daemon
	// said that it stops.
	lastWords = time.Second
)

// errHangs: the daemon reads too little.
var errHangs = errors.New("it hangs")

// sender combines the requests of many goroutines into few writes: each appends
// its line, and the first of them writes for all that join. Nobody blocks in a
// write: what the socket does not take at once, because the daemon is slow or
// hangs, is left to a goroutine of its own.
type sender struct {
	conn       net.Conn
	raw        syscall.RawConn // writes without blocking; nil where conn is no socket
	spawn      func(func())    // starts a goroutine that the Client waits for
	othersSend func() bool     // tells whether somebody else may be about to send

	mu      sync.Mutex // guards what follows; not held across I/O
	pending []byte     // lines to be written
	spare   []byte     // the buffer of the write before
	writing bool       // somebody writes, and will write what is pending too
	err     error      // no more is sent, and why

	attempt writeAttempt // of whoever writes
}

func newSender(conn net.Conn, spawn func(func()), others func() bool) *sender {
	s := &sender{conn: conn, spawn: spawn, othersSend: others}
	if socket, ok := conn.(syscall.Conn); ok {
		s.raw, _ = socket.SyscallConn() // an error leaves it nil: the slower way
	}
	s.attempt.do = s.attempt.write
	return s
}

// send queues a request, and writes it unless somebody else does. It does not
// block. With too much unwritten only urgent requests, which give something
// back, are taken: they are bounded by what they give back.
func (s *sender) send(r *ipc.Request, urgent bool) error {
	s.mu.Lock()
	if err := s.rejection(urgent); err != nil {
		s.mu.Unlock()
		return err
	}
	s.pending = r.AppendTo(s.pending)
	first := !s.writing
	s.writing = true
	s.mu.Unlock()
	if first {
		if s.othersSend() {
			runtime.Gosched() // who is about to send joins: one write for many
		}
		s.flush()
	}
	return nil
}

// sendLines is send for lines that were written already, and are urgent. Where
// nothing is sent any more, they are dropped.
func (s *sender) sendLines(lines []byte) {
	if len(lines) == 0 {
		return
	}
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.pending = append(s.pending, lines...)
	first := !s.writing
	s.writing = true
	s.mu.Unlock()
	if first {
		s.flush()
	}
}

// refuses needs mu.
func (s *sender) rejection(urgent bool) error {
	switch {
	case s.err != nil:
		return s.err
	case len(s.pending) >= maxPending && !urgent:
		return fmt.Errorf("%w: %w: %d bytes of requests are waiting for it to read", ErrUnavailable, errHangs, len(s.pending))
	}
	return nil
}

// flush writes until nothing is pending or the socket takes no more.
func (s *sender) flush() {
	for chunk := s.take(); chunk != nil; chunk = s.take() {
		n, err := s.tryWrite(chunk)
		if err != nil {
			s.writeFailed(err)
		} else if n < len(chunk) {
			s.spawn(func() { s.finish(chunk[n:]) })
			return
		}
	}
}

// finish writes what the socket did not take at once, however long that takes,
// and then goes on. Closing the connection ends it.
func (s *sender) finish(chunk []byte) {
	for ; chunk != nil; chunk = s.take() {
		if _, err := s.conn.Write(chunk); err != nil {
			s.writeFailed(err)
		}
	}
}

// take is what is pending; nil, and nobody writes any more, if nothing is.
func (s *sender) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 || s.err != nil {
		s.writing = false
		return nil
	}
	chunk := s.pending
	s.pending, s.spare = s.spare[:0], nil
	if cap(chunk) <= maxSpare {
		s.spare = chunk // taken again only once this one is written
	}
	return chunk
}

// broke ends the connection after a failed write. What the daemon said before
// is still read: it may be why.
func (s *sender) writeFailed(err error) {
	s.stop(fmt.Errorf("%w: writing to it: %w", ErrUnavailable, err))
	s.conn.SetReadDeadline(time.Now().Add(lastWords)) // fails only if the connection is closed: as well
}

// stop refuses all further requests with err.
func (s *sender) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.pending = err, nil
}

// tryWrite writes what the socket takes without blocking.
func (s *sender) tryWrite(chunk []byte) (int, error) {
	if s.raw == nil {
		return 0, nil
	}
	s.attempt.chunk, s.attempt.n, s.attempt.err = chunk, 0, nil
	if err := s.raw.Write(s.attempt.do); err != nil {
		return 0, err
	}
	return s.attempt.n, s.attempt.err
}

// attempt is one write that does not block. It is kept, with its own method as
// a func value, so that a write allocates nothing.
type writeAttempt struct {
	do    func(fd uintptr) bool
	chunk []byte
	n     int
	err   error
}

// write reports done in any case: what is left is for others.
func (a *writeAttempt) write(fd uintptr) bool {
	for a.n < len(a.chunk) {
		n, err := ipc.RawWrite(fd, a.chunk[a.n:])
		switch {
		case err == nil:
			a.n += n
		case errors.Is(err, syscall.EAGAIN):
			return true
		case !errors.Is(err, syscall.EINTR):
			a.err = err
			return true
		}
	}
	return true
}
