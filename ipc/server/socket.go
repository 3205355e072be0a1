//go:build unix

package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isHungUp reports whether the other side of a socket has closed both directions.
func isHungUp(fd uintptr) bool {
	return poll(fd, 0)&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 // poll reports these unasked
}

// poll returns which of the events are there now.
func poll(fd uintptr, events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return fds[0].Revents
		}
	}
}

// shutdown ends both directions of a socket, for duplicates of the descriptor in other processes
// too. The other side can still read what was written.
func shutdown(fd uintptr) {
	unix.Shutdown(int(fd), unix.SHUT_RDWR) // fails if the other side was first
}

// HungUp reports whether a connection that nobody reads has been ended in both directions, from
// either side. It returns false if that cannot be known.
func HungUp(nc net.Conn) bool {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	return err == nil && (&input{raw: raw}).closedByPeer()
}
