package session

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Shortages of the system. They are temporary, so only requests that need the resource now fail.
var (
	errNoMoreFDs   = fmt.Errorf("%w: redlockd may open no more files (LimitNOFILE= of its service must be more than limits.connections, and processes with hold=pid)", errShortage)
	errNoMoreFiles = fmt.Errorf("%w: too many files are open on this host (fs.file-max)", errShortage)
	errNoMemory    = fmt.Errorf("%w: the kernel has no memory for it (MemoryMax= of the service, memory of the host)", errShortage)
	errNoWatches   = fmt.Errorf("%w: the user of redlockd may watch no more (fs.epoll.max_user_watches)", errShortage)
)

// shortageError returns an error that names the resource that the system lacks. It returns other
// errors unchanged.
func shortageError(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return errNoMoreFDs
	case errors.Is(err, syscall.ENFILE):
		return errNoMoreFiles
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOBUFS):
		return errNoMemory
	case errors.Is(err, syscall.ENOSPC): // of epoll
		return errNoWatches
	}
	return err
}

// Each client takes a descriptor, and so does each process with hold=pid. The last ones are kept:
// without a descriptor the daemon cannot reconnect to a node, and all locks would be lost.
const (
	reservedFDsPerNode = 4  // its two connections, while the previous two end
	reservedFDsBesides = 16 // certificates, passwords, the next state file, /proc
)

var errFDsReserved = fmt.Errorf("%w: the remaining ones are reserved for the nodes", unix.EMFILE)

// DescriptorsLeft returns how many descriptors can still be opened at most: the limit less the
// lowest free number. If the system does not report them, it returns a large number.
func DescriptorsLeft() int {
	const plenty = 1 << 30
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return plenty
	}
	lowest, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0) // Go keeps 0 open
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.EINVAL): // EINVAL if the limit is 0
		return 0
	case err != nil:
		return plenty
	}
	unix.Close(lowest)
	return int(min(uint64(limit.Cur), plenty)) - lowest
}
