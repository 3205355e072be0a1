package statefile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// System calls that can fail for lack of space or memory; tests replace them.
var fallocate, mmap, munmap = unix.Fallocate, unix.Mmap, unix.Munmap

// mapFile makes a file of that many zeros, which only this user can read, maps it, and locks
// it until it is closed: see InUse. It takes the space now, so that a write to the mapping
// cannot fail. It replaces a file that is there.
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

// mapToRead maps a file as it is. If it is empty, somebody has cut it short.
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

// release takes the pages of a mapping out of the memory of the process. They stay in the
// file, and come back when they are touched.
func release(memory []byte) {
	_ = unix.Madvise(memory, unix.MADV_DONTNEED) // if it fails they only stay
}

// unmap leaves the mapping if the kernel has no memory to end it: that costs addresses, and
// the memory of the file.
func unmap(memory []byte) error {
	if err := munmap(memory); err != unix.ENOMEM {
		return err
	}
	return nil
}
