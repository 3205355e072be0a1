package statefile

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OnDisk reports whether writing a state file at the path can wait for a disk. A write to a mapped
// page waits in the kernel while the page is written to the disk, or while the file system is frozen
// or busy. Go's scheduler does not notice that.
func OnDisk(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Dir(path), &fs) != nil {
		return false // it cannot be opened either
	}
	return fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC
}
