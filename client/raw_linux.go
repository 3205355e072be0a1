//go:build !race

package client

import (
	"syscall"
	"unsafe"
)

// rawRead and rawWrite are syscall.Read and Write of a socket that does not
// block, without telling Go's scheduler, as package ipc has them: telling it
// costs more than they do. b is not empty.

func rawRead(fd uintptr, b []byte) (int, error) {
	return rawResult(syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))))
}

func rawWrite(fd uintptr, b []byte) (int, error) {
	return rawResult(syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))))
}

func rawResult(n, _ uintptr, err syscall.Errno) (int, error) {
	switch err {
	case 0:
		return int(n), nil
	case syscall.EAGAIN:
		return -1, errAgain
	}
	return -1, err
}

// errAgain is what most reads end with: made an error once.
var errAgain error = syscall.EAGAIN
