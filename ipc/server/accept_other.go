//go:build !linux

package server

import "net"

// acceptRaw is of use on Linux only.
func (a *acceptor) acceptRaw() (net.Conn, error) { return a.acceptOne() }
