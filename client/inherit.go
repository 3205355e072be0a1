package client

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNoSocket = errors.New("the connection is no socket")

// Inherit has the processes that this one starts from now on hold the connection
// too, and those that they start. If this process is killed, the daemon sees the
// end of the connection, and gives the leases back, only when the last of them
// has ended or closed it. Nobody hears of a loss then, and the leases are
// extended as before. Close ends the connection for all of them.
func (c *Client) Inherit() error {
	socket, ok := c.conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("inherit: %w", errNoSocket)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("inherit: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, failed = unix.FcntlInt(fd, unix.F_SETFD, 0) // no FD_CLOEXEC
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("inherit: %w", err)
	}
	return nil
}

// hangUp ends the connection, for processes that have inherited it as well: the
// daemon reads its end, which it would not where only this process closed it.
func (c *Client) hangUp() {
	if socket, ok := c.conn.(*net.UnixConn); ok {
		_ = socket.CloseWrite() // it fails where the connection has ended
	}
	c.conn.Close()
}
