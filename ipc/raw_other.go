//go:build unix && (!linux || race)

package ipc

import "syscall"

// RawRead is syscall.Read, and RawWrite syscall.Write: raw only on Linux, where
// redlockd has to be fast, and not under the race detector, which learns from
// system calls what came before what.
func RawRead(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

// RawWrite: see RawRead.
func RawWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
