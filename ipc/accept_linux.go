package ipc

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// maxTurnedAway are those who are turned away before other goroutines have a turn.
const maxTurnedAway = 32

// acceptRaw is Accept for when many are turned away: of these nothing is made but a
// descriptor, for a moment. It returns none for now after so many.
func (a *acceptor) acceptRaw() (net.Conn, error) {
	fd, err := -1, error(nil)
	cause := a.raw.Control(func(listener uintptr) { fd, err = a.acceptFew(int(listener)) })
	switch {
	case cause != nil, err == unix.EAGAIN:
		return a.l.Accept() // which waits, or says what is wrong
	case err != nil:
		return nil, os.NewSyscallError("accept4", err)
	case fd < 0:
		return nil, nil
	}
	return netConnOf(fd)
}

// acceptFew turns away who is to be, and is -1 if there was nobody else among few.
func (a *acceptor) acceptFew(listener int) (int, error) {
	for range maxTurnedAway {
		fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == unix.EINTR, err == unix.ECONNABORTED:
			continue
		case err != nil:
			return -1, err
		}
		refusal := a.refusal(peerOfSocket(fd))
		if refusal == nil {
			return fd, nil
		}
		_, _ = RawWrite(uintptr(fd), refusal) // he is gone: then he need not know
		unix.Close(fd)
	}
	return -1, nil
}

// netConnOf makes a connection of a socket's descriptor, which is its own then.
func netConnOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	return net.FileConn(file) // a duplicate
}
