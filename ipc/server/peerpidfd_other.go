//go:build unix && !linux

package server

import (
	"errors"
	"fmt"
)

// PeerPIDFD is for Linux: here the error matches errors.ErrUnsupported.
func (c *Conn) PeerPIDFD() (int, error) {
	return -1, fmt.Errorf("a pidfd of the peer: %w", errors.ErrUnsupported)
}
