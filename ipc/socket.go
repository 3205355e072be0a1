package ipc

import "syscall"

// MaxSocketPath is how many bytes the path of a Unix socket may have. The kernel needs a zero byte
// after it.
const MaxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1
