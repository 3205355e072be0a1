package client

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNoSocket = errors.New("the connection is no socket")

// Inherit has the processes that this one starts from now on hold the connection
// too, and those that they start. If this process is killed, the daemon sees the
// end of the connection, and gives the leases back, only when the last of them
// has ended or closed it. Nobody hears of a loss then, and the leases are
// extended as before. Close ends the connection for all of them.
//
// A connection that is made later, after the daemon was restarted without keeping
// this one, is inherited by what is started after that: processes that run
// already hold it no more, and the leases end with this process.
func (c *Client) Inherit() error {
	c.mu.Lock()
	c.inherit = true
	c.mu.Unlock()
	l := c.link.Load()
	if l == nil {
		return nil // the next one is
	}
	return c.inheritIfWanted(l)
}

// passOn makes a connection one that is inherited, where that is wanted.
func (c *Client) inheritIfWanted(l *link) error {
	c.mu.Lock()
	wanted := c.inherit
	c.mu.Unlock()
	if !wanted {
		return nil
	}
	if err := l.inherit(); err != nil {
		return fmt.Errorf("inherit: %w", err)
	}
	return nil
}

func (l *link) inherit() error {
	socket, ok := l.conn.(syscall.Conn)
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
