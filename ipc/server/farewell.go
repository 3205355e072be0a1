package server

import (
	"net"
	"syscall"
	"time"
)

// SayLast writes what is said last on a connection, before it is closed. It waits for nobody: a
// socket takes a few lines at once, or its client reads nothing. (Not with a deadline: where
// this process is held up, that is over before the first byte is written.)
func Farewell(nc net.Conn, words []byte) {
	if socket, ok := nc.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_, _ = (&output{raw: raw}).writeSome(words)
			return
		}
	}
	nc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // a pipe, of tests
	_, _ = nc.Write(words)
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
