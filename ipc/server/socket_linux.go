package server

import (
	"errors"
	"io"
	"syscall"
	"unsafe"

	"github.com/redlockd/redlockd/ipc"
	"golang.org/x/sys/unix"
)

// canPeek reports whether rawPeek leaves what it reads in the socket.
const canPeek = true

// rawPeek reads like ipc.RawRead, but leaves what it reads in the socket.
func rawPeek(fd uintptr, b []byte) (int, error) {
	for {
		n, _, err := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), syscall.MSG_PEEK, 0, 0)
		switch err {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return -1, err
		}
	}
}

// unreadIn returns the number of bytes in the socket, or 0 if that is unknown.
func unreadIn(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// discardPeeked removes the seen bytes from the socket.
func discardPeeked(fd uintptr, seen []byte) error {
	for len(seen) > 0 {
		switch n, err := ipc.RawRead(fd, seen); {
		case n > 0:
			seen = seen[n:]
		case err == nil:
			return io.ErrUnexpectedEOF // another goroutine or process reads from this socket
		case !errors.Is(err, syscall.EINTR):
			return err
		}
	}
	return nil
}

// otherSideEnded reports whether the peer has ended its side, even if some of its bytes are still
// unread.
func otherSideEnded(fd uintptr) bool {
	return poll(fd, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
