package server

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// PeerPIDFD is a pidfd of the process that connected, the caller's to close. It
// is of that very process: its number may have become another's since. The error
// matches errors.ErrUnsupported where the kernel (before 6.5) or the connection
// has none to give, and unix.ESRCH (before 6.16 also unix.EINVAL) where the process is
// gone; any other means that the system is short of something.
func (c *Conn) PeerPIDFD() (int, error) {
	raw := c.out.raw
	if raw == nil {
		return -1, fmt.Errorf("a pidfd of the peer: %w: the connection is no socket", errors.ErrUnsupported)
	}
	var pidfd int
	var err error
	if closed := raw.Control(func(fd uintptr) { pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD) }); closed != nil {
		return -1, closed
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		err = errors.ErrUnsupported
	}
	if err != nil {
		return -1, fmt.Errorf("a pidfd of the peer: %w", err)
	}
	return pidfd, nil
}
