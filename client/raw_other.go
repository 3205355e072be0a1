//go:build unix && (!linux || race)

package client

import "syscall"

// rawRead and rawWrite are raw on Linux; not under the race detector, which
// learns from system calls what came before what.

func rawRead(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func rawWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
