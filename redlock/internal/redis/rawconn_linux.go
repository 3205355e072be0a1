package redis

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"
)

// rawConn is a connection whose reads and writes do not notify Go's scheduler about the system
// calls. The notification costs more than the calls. A write to a node on this host runs the
// kernel's whole path to its socket. That takes longer than the 20 µs after which the scheduler
// gives the goroutine's processor to another thread. And the first system call after each idle
// moment wakes the scheduler's monitor, which then runs every 20 µs. The socket does not block:
// the runtime waits, as for any net.Conn.
type rawConn struct {
	net.Conn
	raw     syscall.RawConn
	doRead  func(fd uintptr) bool // c.read and c.write as values, so that using them allocates nothing
	doWrite func(fd uintptr) bool

	reading sync.Mutex // guards the fields up to readErr, for one Read at a time, as the socket does
	room    []byte
	got     int
	readErr error

	writing  sync.Mutex // guards the fields below, for one Write at a time, as the socket does
	rest     []byte
	writeErr error
}

// withRawIO returns a rawConn of conn, or conn itself if it is no plain socket.
func withRawIO(conn net.Conn) net.Conn {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn // it is closed, which its first use will report
	}
	c := &rawConn{Conn: conn, raw: raw}
	c.doRead, c.doWrite = c.read, c.write
	return c
}

// Read blocks until the node has sent something, or until the read deadline.
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

// read returns false if there is nothing to read for now.
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

// write returns false if the socket accepts nothing more for now.
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
