package ipc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func peerOf(raw syscall.RawConn) (p Peer) {
	if raw == nil {
		return p
	}
	// On an error p stays unknown: the socket is none of a local process.
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && cred.Pid > 0 {
			p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, Known: true}
		}
	})
	return p
}
