package ipc

import "syscall"

// MaxSocketPath is the maximal length of a Unix socket's path, in bytes. The kernel needs a zero
// byte after it.
const MaxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1
