package server

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nobody is the user that the kernel reports where there is none.
const nobody = ^uint32(0)

func peerOf(raw syscall.RawConn) (p Peer) {
	if raw != nil {
		_ = raw.Control(func(fd uintptr) { p = peerOfSocket(int(fd)) }) // fails where it is closed
	}
	return p
}

// peerOfSocket is unknown where the socket is none of a local process.
func peerOfSocket(fd int) (p Peer) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && cred.Uid != nobody {
		p = Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, Groups: peerGroups(uintptr(fd)), Known: true}
	}
	return p
}

// peerGroups is of the moment of connecting, as SO_PEERCRED is. What /proc says of
// the pid is no substitute where the kernel lacks the option (before 4.13): the
// pid can be another's by then, or run another program. The peer has fewer groups
// there, never more.
func peerGroups(fd uintptr) []uint32 {
	var few [32]uint32
	groups := few[:]
	for range 2 { // a second time where they are more; they do not change
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
