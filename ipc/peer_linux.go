package ipc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user that the kernel reports where there is none.
const nobody = ^uint32(0)

func peerOf(raw syscall.RawConn) (p Peer) {
	if raw == nil {
		return p
	}
	// On an error p stays unknown: the socket is none of a local process.
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && cred.Uid != nobody {
			p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, Known: true}
		}
	})
	return p
}
