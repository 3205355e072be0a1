package client

import (
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redlockd/redlockd/ipc"
	"golang.org/x/sys/unix"
)

// input reads a connection. It reads a socket raw: see ipc.RawRead.
type input struct {
	raw  syscall.RawConn
	do   func(fd uintptr) bool // in.read, kept so that reading allocates nothing
	room []byte
	n    int
	err  error
}

func newInput(conn net.Conn) io.Reader {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn // it is closed, and the first read reports that
	}
	in := &input{raw: raw}
	in.do = in.read
	return in
}

// Read is called by the reader only. b must not be empty.
func (in *input) Read(b []byte) (int, error) {
	in.room = b
	if err := in.raw.Read(in.do); err != nil {
		return 0, err
	}
	return in.n, in.err
}

// read returns false if there is nothing to read yet.
func (in *input) read(fd uintptr) bool {
	for {
		in.n, in.err = ipc.RawRead(fd, in.room)
		switch {
		case errors.Is(in.err, syscall.EAGAIN):
			return false
		case errors.Is(in.err, syscall.EINTR):
			continue
		case in.err != nil:
			in.n = 0
		case in.n == 0:
			in.err = io.EOF
		}
		return true
	}
}

var errNoSocket = errors.New("the connection is not a socket")

// inheritable lets child processes inherit the descriptor of conn.
func inheritable(conn net.Conn) error {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return errNoSocket
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, failed = unix.FcntlInt(fd, unix.F_SETFD, 0) // no FD_CLOEXEC
	})
	return errors.Join(err, failed)
}
