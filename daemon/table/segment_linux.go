package table

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile makes a file of so many zeros, which nobody else can read, and maps it.
// The space is taken now: a write to the mapping never fails. One that is there
// already, from an earlier time, is replaced.
func mapFile(path string, size int) ([]byte, error) {
	file, err := createNew(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the mapping stays
	memory, err := mapped(int(file.Fd()), size)
	if err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return memory, nil
}

func mapped(fd, size int) ([]byte, error) {
	for {
		err := unix.Fallocate(fd, 0, 0, int64(size))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%d bytes for it: %w", size, err)
		}
		return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
}

func unmap(memory []byte) error { return unix.Munmap(memory) }
