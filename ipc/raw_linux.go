//go:build !race

package ipc

import (
	"syscall"
	"unsafe"
)

// RawRead is syscall.Read, and RawWrite syscall.Write, of a socket that does not
// block, without telling Go's scheduler. Telling it costs more than they do: the
// first such call after each idle moment wakes the scheduler's monitor, and a
// write that wakes the other side often takes longer than the 20 µs after which
// its processor is given away. b is not empty; -1 and EAGAIN: not now.
func RawRead(fd uintptr, b []byte) (int, error) {
	return rawResult(syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))))
}

// RawWrite: see RawRead.
func RawWrite(fd uintptr, b []byte) (int, error) {
	return rawResult(syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))))
}

func rawResult(n, _ uintptr, err syscall.Errno) (int, error) {
	if err != 0 {
		return -1, err
	}
	return int(n), nil
}
