package statefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// A living process has the last of its files locked, from before that counts until the
// next one does. So nobody else goes on where it is: neither with its leases, which it
// extends itself, nor in its files.

// Exists tells whether there is a table at the path, for all that this user can see.
func Exists(path string) bool {
	numbers, _ := numbered(path) // none where there is no such directory
	return len(numbers) > 0
}

// InUse is a file of the table at the path that a living process appends to; "": there is
// none.
func InUse(path string) (file string) {
	t := Table{o: Options{Path: path}}
	numbers, _ := numbered(path) // none where there is no such directory
	for _, number := range numbers {
		if isLocked(t.file(number)) {
			return t.file(number)
		}
	}
	return ""
}

// displaced is a file of another process, in the place of the last one or beside where
// that was; "": there is none. It needs mu.
func (t *Table) displaced() (file string) {
	path := t.file(t.number)
	there, err := os.Lstat(path)
	if err != nil {
		return InUse(t.o.Path)
	}
	if ours, err := t.last.file.Stat(); err == nil && !os.SameFile(ours, there) && isLocked(path) {
		return path
	}
	return ""
}

// yield ends appending for good: the files that are there now are another's, and stay. It
// needs mu.
func (t *Table) yield(used string) {
	t.frozen, t.last = t.files(), nil
	t.takeSpare().discard()
	t.unmapFrozen()
	t.frozen, t.closed = nil, true
	t.tell(fmt.Errorf("%w: another process appends to %s now: end this one", ErrRemoved, used))
}

// isLocked is false of a file that is none of ours.
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
