//go:build !linux

package redis

import "net"

// withRawIO returns conn: raw I/O is for Linux, where redlockd must be fast.
func withRawIO(conn net.Conn) net.Conn { return conn }
