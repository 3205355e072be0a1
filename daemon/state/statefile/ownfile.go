package statefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Other users may be able to write to the directory. The functions below neither read files of other
// users nor follow their links.

// readOwn reads a file that belongs to this user and that no other user can write to. It
// does not follow a link, and does not block on a pipe.
func readOwn(path string) ([]byte, error) {
	file, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

func openOwn(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = isOwn(info)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

func isOwn(info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is not a file: somebody has put it there")
	case !ok || int(stat.Uid) != os.Geteuid():
		return errors.New("another user owns it: they put it there, or redlockd ran as that user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users can write to it (mode %#o)", info.Mode().Perm())
	}
	return nil
}

// createNew creates a file that only this user can read. It removes an existing one.
func createNew(path string) (*os.File, error) {
	os.Remove(path) // if it fails, OpenFile reports an error
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// writeNew calls write with a new file, and then maps the file, so that it can be read even if the
// process cannot open more files.
func writeNew(path string, write func(io.Writer) error) (content []byte, err error) {
	file, err := createNew(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the mapping stays
	w := bufio.NewWriterSize(file, 64<<10)
	if err := errors.Join(write(w), w.Flush()); err != nil {
		return nil, err
	}
	return mapToRead(file)
}
