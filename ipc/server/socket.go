//go:build unix

package server

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isHungUp reports whether the peer of a socket has closed both directions.
func isHungUp(fd uintptr) bool {
	return poll(fd, 0)&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 // poll always reports these events
}

// poll returns which of the events are pending now.
func poll(fd uintptr, events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return fds[0].Revents
		}
	}
}

// shutdown ends both directions of a socket, also for duplicates of the descriptor in other
// processes. The peer can still read what was written.
func shutdown(fd uintptr) {
	unix.Shutdown(int(fd), unix.SHUT_RDWR) // fails if the peer was first
}

// HungUp reports whether a connection that no goroutine reads has ended in both directions, from
// either side. It returns false if that cannot be determined.
func HungUp(nc net.Conn) bool {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	return err == nil && (&input{raw: raw}).closedByPeer()
}
