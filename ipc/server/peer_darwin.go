package server

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

func peerOf(raw syscall.RawConn) (p Peer) {
	if raw == nil {
		return p
	}
	// If it fails, p stays unknown: the peer is not a local process.
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err != nil {
			return
		}
		pid, err := unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		if err == nil {
			groups := cred.Groups[:min(max(int(cred.Ngroups), 1), len(cred.Groups))]
			p = Peer{PID: pid, UID: cred.Uid, GID: groups[0], Groups: slices.Clone(groups[1:]), Known: true}
		}
	})
	return p
}
