package cmdtest

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the pid of the process that connected first, or 0 if it has disconnected.
func (f *Fake) Peer() (pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, err := f.conns[0].(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
