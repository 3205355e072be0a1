package redlock

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"
)

// rawWriter is a connection whose writes do not tell Go's scheduler that they
// are system calls. A write to a node on this host runs the kernel's whole way
// to its socket, longer than the 20 µs after which the scheduler gives the
// goroutine's processor away, and gets another thread going, which costs more
// than the write. The socket does not block: waiting for room is the runtime's,
// as with any net.Conn.
type rawWriter struct {
	net.Conn
	raw syscall.RawConn
	do  func(fd uintptr) bool // w.write, kept so that writing allocates nothing

	mu   sync.Mutex // one Write at a time, as the socket has it
	rest []byte
	err  error
}

// withRawWrites returns conn itself where it is no plain socket.
func withRawWrites(conn net.Conn) net.Conn {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn // it is closed: the first use tells
	}
	w := &rawWriter{Conn: conn, raw: raw}
	w.do = w.write
	return w
}

// Write blocks as long as the node takes no more, until the write deadline.
func (w *rawWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest, w.err = b, nil
	err := w.raw.Write(w.do)
	if err == nil {
		err = w.err
	}
	n := len(b) - len(w.rest)
	w.rest = nil
	return n, err
}

// write is false where the socket takes no more for now.
func (w *rawWriter) write(fd uintptr) bool {
	for len(w.rest) > 0 {
		n, _, err := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&w.rest[0])), uintptr(len(w.rest)))
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == syscall.EINTR:
		case err != 0:
			w.err = err
			return true
		case n == 0:
			w.err = io.ErrUnexpectedEOF
			return true
		default:
			w.rest = w.rest[n:]
		}
	}
	return true
}
