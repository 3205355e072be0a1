package server

import (
	"net"
	"os"

	"github.com/redlockd/redlockd/ipc"
	"golang.org/x/sys/unix"
)

// maxTurnedAway are those who are turned away before other goroutines have a turn.
const maxTurnedAway = 32

// acceptRaw is Accept for when many are turned away: of these nothing is made but a
// descriptor, for a moment. It returns none for now after so many.
func (a *acceptor) acceptRaw() (net.Conn, error) {
	fd, peer, err := -1, Peer{}, error(nil)
	cause := a.raw.Control(func(listener uintptr) { fd, peer, err = a.acceptFew(int(listener)) })
	switch {
	case cause != nil, err == unix.EAGAIN:
		return a.acceptOne() // which waits, or says what is wrong
	case err != nil:
		return nil, os.NewSyscallError("accept4", err)
	case fd < 0:
		return nil, nil
	}
	nc, err := netConnOf(fd)
	if err != nil && a.s.Dismissed != nil {
		a.s.Dismissed(peer)
	}
	return nc, err
}

// acceptFew turns away who is to be, and is -1 if nobody was admitted among few.
func (a *acceptor) acceptFew(listener int) (int, Peer, error) {
	for range maxTurnedAway {
		fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == unix.EINTR, err == unix.ECONNABORTED:
			continue
		case err != nil:
			return -1, Peer{}, err
		}
		peer := peerOfSocket(fd)
		refusal := a.refusal(peer)
		if refusal == nil {
			return fd, peer, nil
		}
		_, _ = ipc.RawWrite(uintptr(fd), refusal) // he is gone: then he need not know
		unix.Close(fd)
	}
	return -1, Peer{}, nil
}

// netConnOf makes a connection of a socket's descriptor, which is its own then.
func netConnOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	return net.FileConn(file) // a duplicate
}
