//go:build unix && (!linux || race)

package ipc

import "syscall"

// RawRead is syscall.Read. It is raw only on Linux, where redlockd has to be fast, and not under
// the race detector, which learns the order of events from system calls.
func RawRead(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

// RawWrite is syscall.Write.
func RawWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
