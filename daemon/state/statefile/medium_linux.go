package statefile

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OnDisk tells whether a table at the path is where a disk can keep its writer waiting: a
// write to a page that is being written to the disk, or of a file system that is frozen or
// full of work, waits in the kernel, and Go's scheduler knows nothing of that.
func OnDisk(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Dir(path), &fs) != nil {
		return false // it cannot be opened, either
	}
	return fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC
}
