//go:build !linux

package redis

import "net"

// withRawIO is for Linux, where redlockd has to be fast.
func withRawIO(conn net.Conn) net.Conn { return conn }
