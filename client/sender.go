package client

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

const (
	// maxPending bounds the bytes that stay unwritten if the daemon does not read.
	maxPending = 1 << 20
	// maxSpare is the largest buffer that is kept for the next write.
	maxSpare = 64 << 10
	// byeTimeout is how long answers are read after a write failed, or after the daemon said that it
	// stops.
	byeTimeout = time.Second
)

// errHangs means that the daemon does not read its input.
var errHangs = errors.New("it hangs")

// sender combines the requests of many goroutines into few writes. Each goroutine appends its line,
// and the first one writes for all. No goroutine blocks in a write: if the socket is full, because
// the daemon is slow or hangs, a separate goroutine writes the rest. The Client waits for it.
type sender struct {
	conn  net.Conn
	raw   syscall.RawConn // writes without blocking; nil if conn is no socket
	spawn func(func())    // starts a goroutine that the Client waits for

	mu      *sync.Mutex // Client.mu; guards the fields below; not held during I/O
	pending []byte      // lines to be written
	spare   []byte      // the buffer of the last write
	writing bool        // a goroutine writes, and will write what is pending too
	err     error       // why nothing is sent any more, or nil

	// The goroutine that writes owns the fields below. tryOnce is s.write, kept so that a write
	// allocates nothing.
	tryOnce  func(fd uintptr) bool
	chunk    []byte
	n        int
	writeErr error
}

func newSender(conn net.Conn, spawn func(func()), mu *sync.Mutex) *sender {
	s := &sender{conn: conn, spawn: spawn, mu: mu}
	if socket, ok := conn.(syscall.Conn); ok {
		s.raw, _ = socket.SyscallConn() // an error leaves it nil, which is slower
	}
	s.tryOnce = s.write
	return s
}

// queueLocked queues a request. If too much is unwritten, it accepts only urgent requests, which release
// something. The number of leases bounds them. The caller holds mu, and calls beginWriteLocked before it
// releases mu.
func (s *sender) queueLocked(r *ipc.Request, urgent bool) error {
	switch {
	case s.err != nil:
		return s.err
	case len(s.pending) >= maxPending && !urgent:
		return fmt.Errorf("%w: %w: %d bytes of requests are waiting for it to read", ErrUnavailable, errHangs, len(s.pending))
	}
	s.pending = r.AppendTo(s.pending)
	return nil
}

// beginWriteLocked reports whether the caller has to call flush, without mu. The caller holds mu.
func (s *sender) beginWriteLocked() bool {
	if s.writing || len(s.pending) == 0 {
		return false
	}
	s.writing = true
	return true
}

// flush writes until nothing is pending or the socket is full.
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

// finish writes the rest that the socket did not take at once, however long that takes, and then
// what is pending. Closing the connection ends it.
func (s *sender) finish(chunk []byte) {
	for ; chunk != nil; chunk = s.take() {
		if _, err := s.conn.Write(chunk); err != nil {
			s.writeFailed(err)
		}
	}
}

// take returns what is pending. It returns nil and ends writing if nothing is.
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
		s.spare = chunk // used again only after this one is written
	}
	return chunk
}

// writeFailed ends the connection after a failed write. The reader still reads what the daemon said
// before: it may be the reason.
func (s *sender) writeFailed(err error) {
	s.stop(fmt.Errorf("%w: writing to it: %w", ErrUnavailable, err))
	s.conn.SetReadDeadline(time.Now().Add(byeTimeout)) // fails only if the connection is already closed
}

// stop rejects all further requests with err.
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
	s.chunk, s.n, s.writeErr = chunk, 0, nil
	if err := s.raw.Write(s.tryOnce); err != nil {
		return 0, err
	}
	return s.n, s.writeErr
}

// write returns true, which ends the wait for the socket: the caller handles the rest.
func (s *sender) write(fd uintptr) bool {
	for s.n < len(s.chunk) {
		n, err := ipc.RawWrite(fd, s.chunk[s.n:])
		switch {
		case err == nil:
			s.n += n
		case errors.Is(err, syscall.EAGAIN):
			return true
		case !errors.Is(err, syscall.EINTR):
			s.writeErr = err
			return true
		}
	}
	return true
}
