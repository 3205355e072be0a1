//go:build unix

package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp tells whether the other side of a socket has closed both directions.
func isHungUp(fd uintptr) bool {
	return poll(fd, 0)&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 // they are reported unasked
}

// polled is what of some events there is now.
func poll(fd uintptr, events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return fds[0].Revents
		}
	}
}

// hangUp ends both directions of a socket, for duplicates of the descriptor in
// other processes too. What was written can still be read at the other side.
func shutdown(fd uintptr) {
	unix.Shutdown(int(fd), unix.SHUT_RDWR) // fails where the other side was first
}

// HungUp tells whether a connection that nobody reads has been ended altogether, from either
// side. False where that cannot be known.
func HungUp(nc net.Conn) bool {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	return err == nil && (&input{raw: raw}).closedByPeer()
}
