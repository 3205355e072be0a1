package statefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// A living process has its file locked, from before the file gets its name until the next one has it. So
// no other process takes over its leases, which it still extends, or writes into its file.

// InUse returns a file at the path to which a living process appends; "": there is none.
func InUse(path string) (file string) {
	f := File{o: Options{Path: path}}
	numbers, _ := fileNumbers(path) // none if there is no such directory
	for _, number := range numbers {
		if isLocked(f.path(number)) {
			return f.path(number)
		}
	}
	return ""
}

// isLocked reports whether a process has the file locked. It is false for a file of another user.
func isLocked(path string) bool {
	file, _, err := openOwn(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(lock(file, syscall.LOCK_SH), syscall.EWOULDBLOCK)
}

func lock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		if err != syscall.EINTR {
			return err
		}
	}
}

// Check checks whether the file exists under its name and is whole, because an append does not notice
// that. If the file was removed, it begins a new one with the same state. If it was truncated, or
// another process has begun a state file, it stops writing for good.
func (f *File) Check() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen || f.active == nil || f.rewriting != nil {
		return
	}
	if used := f.displacedLocked(); used != "" {
		f.active.close()
		f.active, f.closed = nil, true
		f.report(fmt.Errorf("%w: another process appends to %s: stop this daemon", ErrRemoved, used))
		return
	}
	info, err := os.Lstat(f.path(f.active.number))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if f.continueInMemoryLocked(fmt.Errorf("somebody removed files of it: %w", err)); !f.closed {
			f.retryLocked()
		}
	case err == nil && info.Size() < f.active.size:
		f.stopForGoodLocked(cut(info.Size(), f.active.size))
	}
}

// displacedLocked returns a file of another process that has the name of the active file. If no file has
// that name, it returns any file in use at the path; "": there is none.
func (f *File) displacedLocked() (file string) {
	path := f.path(f.active.number)
	there, err := os.Lstat(path)
	if err != nil {
		return InUse(f.o.Path)
	}
	if ours, err := f.active.Stat(); err == nil && !os.SameFile(ours, there) && isLocked(path) {
		return path
	}
	return ""
}
