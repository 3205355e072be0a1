package server

import (
	"net"
	"os"

	"github.com/redlockd/redlockd/ipc"
	"golang.org/x/sys/unix"
)

// maxRefusals is the number of clients to refuse before other goroutines may run.
const maxRefusals = 32

// acceptRaw accepts while many clients are refused. A refused client costs only a descriptor, for a
// moment. After maxRefusals refusals it returns nil.
func (a *acceptor) acceptRaw() (net.Conn, error) {
	fd, peer, err := -1, Peer{}, error(nil)
	cause := a.raw.Control(func(listener uintptr) { fd, peer, err = a.acceptNextAdmitted(int(listener)) })
	switch {
	case cause != nil, err == unix.EAGAIN:
		return a.acceptOne() // it waits, or reports the error
	case err != nil:
		return nil, os.NewSyscallError("accept4", err)
	case fd < 0:
		return nil, nil
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	nc, err := net.FileConn(file) // duplicates the descriptor
	if err != nil && a.s.Dismissed != nil {
		a.s.Dismissed(peer)
	}
	return nc, err
}

// acceptNextAdmitted refuses clients until one is admitted, and returns its descriptor. After
// maxRefusals refusals it returns -1.
func (a *acceptor) acceptNextAdmitted(listener int) (int, Peer, error) {
	for range maxRefusals {
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
		_, _ = ipc.RawWrite(uintptr(fd), refusal) // fails if the client has closed
		unix.Close(fd)
	}
	return -1, Peer{}, nil
}
