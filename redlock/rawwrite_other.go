//go:build !linux

package redlock

import "net"

// withRawWrites is for Linux, where redlockd has to be fast.
func withRawWrites(conn net.Conn) net.Conn { return conn }
