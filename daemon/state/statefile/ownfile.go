package statefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Other users may be able to write to the directory. The functions below neither read files of other
// users nor follow their links.

// openOwn opens a file that belongs to this user and that no other user can write to. It does not
// follow a link, and does not block on a pipe.
func openOwn(path string) (*os.File, os.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = isOwn(info)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, info, nil
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
