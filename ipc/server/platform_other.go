//go:build unix && !linux

package server

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/redlockd/redlockd/ipc"
)

// acceptRaw accepts one connection. Only Linux has a faster way to refuse many clients.
func (a *acceptor) acceptRaw() (net.Conn, error) { return a.acceptOne() }

// peerPIDFD returns an error that matches errors.ErrUnsupported: only Linux has pidfds.
func peerPIDFD(syscall.RawConn) (int, error) {
	return -1, fmt.Errorf("a pidfd of the peer: %w", errors.ErrUnsupported)
}

// canPeek reports whether rawPeek leaves the bytes in the socket. Only Linux needs that: there,
// connections outlast the process.
const canPeek = false

func rawPeek(fd uintptr, b []byte) (int, error) { return ipc.RawRead(fd, b) }

func unreadIn(uintptr) int { return 0 }

func discardPeeked(uintptr, []byte) error { return nil }

func otherSideEnded(uintptr) bool { return false }
