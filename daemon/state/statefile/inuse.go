package statefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// A living process has its active file locked, from before the file counts until the next one
// counts. So no other process takes over its leases, which it still extends, or writes into its
// files.

// Exists reports whether there is a state file at the path, as far as this user can see.
func Exists(path string) bool {
	numbers, _ := fileNumbers(path) // none if there is no such directory
	return len(numbers) > 0
}

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

// displaced returns a file of another process that has the name of the active file. If no file has
// that name, it returns any file in use at the path; "": there is none. It requires mu.
func (f *File) displaced() (file string) {
	path := f.path(f.number)
	there, err := os.Lstat(path)
	if err != nil {
		return InUse(f.o.Path)
	}
	if ours, err := f.active.file.Stat(); err == nil && !os.SameFile(ours, there) && isLocked(path) {
		return path
	}
	return ""
}

// stopForOtherProcess stops appending for good. The files at the path belong to another process, and
// stay. It requires mu.
func (f *File) stopForOtherProcess(used string) {
	f.sealed, f.active = f.files(), nil
	f.unmapSealed()
	f.sealed, f.closed = nil, true
	f.reportFailure(fmt.Errorf("%w: another process appends to %s: stop this daemon", ErrRemoved, used))
}

// isLocked reports whether a process has the file locked. It is false for a file of another user.
func isLocked(path string) bool {
	file, err := openOwn(path)
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
