package ipc

import "syscall"

// MaxSocketPath is how many bytes the path of a Unix socket may have: the kernel wants a
// zero behind it.
const MaxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1
