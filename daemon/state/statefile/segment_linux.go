package statefile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// System calls that can fail if there is no space or memory. They are variables for tests.
var fallocate, mmap, munmap = unix.Fallocate, unix.Mmap, unix.Munmap

// mapFile creates a file of size zeros that only this user can read, maps it, and locks it until it
// is closed: see InUse. It allocates the space now, so that a write to the mapping cannot fail. It
// replaces an existing file.
func mapFile(path string, size int) ([]byte, *os.File, error) {
	file, err := createNew(path)
	if err != nil {
		return nil, nil, err
	}
	var memory []byte
	if err = lock(file, unix.LOCK_EX); err == nil {
		memory, err = mapped(int(file.Fd()), size)
	}
	if err != nil {
		file.Close()
		os.Remove(path)
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return memory, file, nil
}

// mapToRead maps a file for reading. An empty file was truncated.
func mapToRead(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("%s: %w", file.Name(), errShort)
	}
	memory, err := mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be mapped: %w", file.Name(), err)
	}
	return memory, nil
}

func mapped(fd, size int) ([]byte, error) {
	for {
		err := fallocate(fd, 0, 0, int64(size))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("no room for its %d bytes: %w", size, err)
		}
		memory, err := mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return nil, fmt.Errorf("its %d bytes cannot be mapped: %w", size, err)
		}
		return memory, nil
	}
}

// release removes the pages of a mapping from the memory of the process. They stay in the
// file, and the kernel maps them again when they are touched.
func release(memory []byte) {
	_ = unix.Madvise(memory, unix.MADV_DONTNEED) // if it fails, the pages stay in memory
}

// unmap unmaps memory. If the kernel has no memory for that, the mapping stays: that costs address
// space, and the memory of the file.
func unmap(memory []byte) error {
	if err := munmap(memory); err != unix.ENOMEM {
		return err
	}
	return nil
}
