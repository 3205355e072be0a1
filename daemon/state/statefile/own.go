package statefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// This file is for directories that others can write to as well: what they put there
// is neither read nor written through.

// readOwn reads a file of this process's user that nobody else can write to. It does
// not follow a link, and does not wait for a pipe.
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
		return errors.New("it is no file: somebody has put it there")
	case !ok || int(stat.Uid) != os.Geteuid():
		return errors.New("it is another user's: he has put it there, or redlockd ran as him")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to it (mode %#o)", info.Mode().Perm())
	}
	return nil
}

// createNew makes a file that was not there, for this user alone. What was there
// before is removed.
func createNew(path string) (*os.File, error) {
	os.Remove(path) // what is wrong with it, the next line says
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// writeNew has a file written piece by piece, and maps it: what was written can be read
// from then on, also where no more files can be opened. An error of a piece is the error
// of all.
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
