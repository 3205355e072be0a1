package exit

import (
	"os"

	"golang.org/x/sys/unix"
)

// The resources that redlock needs. If the Go runtime gets less later, it ends the process with a
// stack trace. If the address space is below 758 MB (ulimit -v 740000), the process ends before
// main. The runtime reserves tables for the largest heap, and no setting of the linker or of
// GODEBUG makes them smaller.
const (
	minFiles        = 10            // in addition to the open ones
	minAddressSpace = 2_000_000_000 // bytes, as ulimit -v 1953125 allows
)

// CheckLimits returns a failure if the limits of this process are too tight for redlock.
func CheckLimits() error {
	var limit unix.Rlimit // of int64 on FreeBSD
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err == nil {
		if err := checkAddressSpace(uint64(limit.Cur)); err != nil {
			return err
		}
	}
	return checkFiles()
}

func checkAddressSpace(bytes uint64) error {
	if bytes >= minAddressSpace {
		return nil
	}
	return Errorf(System, "this process may have %d MB of address space, and redlock needs %d: raise the limit (ulimit -v %d)",
		bytes/1e6, minAddressSpace/1_000_000, minAddressSpace/1024)
}

// checkFiles opens as many files as redlock needs, and closes them. It does not use os.File,
// because the runtime would open files of its own.
func checkFiles() (err error) {
	var open []int
	for len(open) < minFiles && err == nil {
		var fd int
		if fd, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			open = append(open, fd)
		}
	}
	for _, fd := range open {
		unix.Close(fd)
	}
	if err == unix.EMFILE || err == unix.ENFILE {
		return Errorf(System, "this process may open %d more files, and redlock needs %d: raise the limit (ulimit -n): %w", len(open), minFiles, err)
	}
	return nil // other errors are about this file only
}
