package statefile

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OnDisk tells whether a state file at the path can wait for a disk. A write to a page that
// is being written to the disk, or of a file system that is frozen or busy, waits in the
// kernel, which Go's scheduler does not notice.
func OnDisk(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Dir(path), &fs) != nil {
		return false // it cannot be opened either
	}
	return fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC
}
