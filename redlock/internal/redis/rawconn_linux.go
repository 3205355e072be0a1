package redis

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"
)

// rawConn is a connection whose reads and writes do not tell Go's scheduler that
// they are system calls. Telling it costs more than they do: a write to a node on
// this host runs the kernel's whole way to its socket, longer than the 20 µs
// after which the scheduler gives the goroutine's processor away and gets another
// thread going; and the first system call after each idle moment wakes the
// scheduler's monitor, which then looks around every 20 µs. The socket does not
// block: waiting is the runtime's, as with any net.Conn.
type rawConn struct {
	net.Conn
	raw     syscall.RawConn
	doRead  func(fd uintptr) bool // c.read and c.write, kept so that using them allocates nothing
	doWrite func(fd uintptr) bool

	reading sync.Mutex // guards what follows, up to readErr, for one Read at a time, as the socket does
	room    []byte
	got     int
	readErr error

	writing  sync.Mutex // guards what follows, for one Write at a time, as the socket does
	rest     []byte
	writeErr error
}

// withRawIO returns conn itself where it is no plain socket.
func withRawIO(conn net.Conn) net.Conn {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn // it is closed: the first use tells
	}
	c := &rawConn{Conn: conn, raw: raw}
	c.doRead, c.doWrite = c.read, c.write
	return c
}

// Read blocks until the node has said something, or until the read deadline.
func (c *rawConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.room, c.got, c.readErr = b, 0, nil
	err := c.raw.Read(c.doRead)
	if err == nil {
		err = c.readErr
	}
	c.room = nil
	return c.got, err
}

// read is false where there is nothing for now.
func (c *rawConn) read(fd uintptr) bool {
	for {
		n, _, err := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&c.room[0])), uintptr(len(c.room)))
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == syscall.EINTR:
			continue
		case err != 0:
			c.readErr = err
		case n == 0:
			c.readErr = io.EOF
		default:
			c.got = int(n)
		}
		return true
	}
}

// Write blocks while the node does not read, until the write deadline.
func (c *rawConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.rest, c.writeErr = b, nil
	err := c.raw.Write(c.doWrite)
	if err == nil {
		err = c.writeErr
	}
	n := len(b) - len(c.rest)
	c.rest = nil
	return n, err
}

// write returns false if the socket takes nothing more for now.
func (c *rawConn) write(fd uintptr) bool {
	for len(c.rest) > 0 {
		n, _, err := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&c.rest[0])), uintptr(len(c.rest)))
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == syscall.EINTR:
		case err != 0:
			c.writeErr = err
			return true
		case n == 0:
			c.writeErr = io.ErrUnexpectedEOF
			return true
		default:
			c.rest = c.rest[n:]
		}
	}
	return true
}
