package statefile

import (
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// mapFile maps a file for appending: that costs no system call for each record, and is most of the time of
// an append. See BenchmarkAppend.
func mapFile(file *os.File, size int64) ([]byte, error) {
	return unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// release removes the pages of a mapping from the memory of the process. They stay in the file.
func release(memory []byte) {
	_ = unix.Madvise(memory, unix.MADV_DONTNEED) // if it fails, the pages stay in memory
}

// unmap unmaps memory. If the kernel has no memory for that, the mapping stays.
func unmap(memory []byte) {
	if memory != nil {
		_ = unix.Munmap(memory)
	}
}

// guarded calls do, which touches mappings on this goroutine only. If a mapped file was truncated,
// the kernel sends SIGBUS to the thread that touches it, which would end the process. guarded
// returns errCut instead.
func guarded(do func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch what := recover().(type) {
		case nil:
		case addressError:
			err = errCut
		default:
			panic(what) // a bug
		}
	}()
	do()
	return nil
}

// addressError is the type of the panic after a fault at an address that is not near nil.
type addressError interface {
	runtime.Error
	Addr() uintptr
}
