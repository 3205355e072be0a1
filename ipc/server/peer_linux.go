package server

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nobody is the user ID that the kernel reports if the socket has no peer.
const nobody = ^uint32(0)

func peerOf(raw syscall.RawConn) (p Peer) {
	if raw != nil {
		_ = raw.Control(func(fd uintptr) { p = peerOfSocket(int(fd)) }) // fails if it is closed
	}
	return p
}

// peerOfSocket returns the peer. It is unknown if the socket does not belong to a local process.
func peerOfSocket(fd int) (p Peer) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && cred.Uid != nobody {
		p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, Groups: peerGroups(uintptr(fd)), Known: true}
	}
	return p
}

// peerGroups returns the groups at the time of connecting, like SO_PEERCRED. If the kernel lacks
// the option (before 4.13), /proc does not replace it: another process may have the pid by now, or
// the process may run another program. The peer then has fewer groups, never more.
func peerGroups(fd uintptr) []uint32 {
	var few [32]uint32
	groups := few[:]
	for range 2 { // twice if there are more; they do not change
		size := uint32(len(groups)) * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0 && size == 0:
			return nil
		case errno == 0:
			return slices.Clone(groups[:size/4])
		case errno != unix.ERANGE:
			return nil
		}
		groups = make([]uint32, size/4)
	}
	return nil
}

// peerPIDFD implements Conn.PeerPIDFD.
func peerPIDFD(raw syscall.RawConn) (int, error) {
	if raw == nil {
		return -1, fmt.Errorf("a pidfd of the peer: %w: the connection is not a socket", errors.ErrUnsupported)
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
