package process

import (
	"errors"
	"time"
)

// The reasons why a process cannot be watched or seen.
var (
	ErrNoProcess = errors.New("there is no such process, or it has ended")
	ErrThread    = errors.New("it is a thread: give the number of its process")
	ErrHidden    = errors.New("the daemon cannot see whose process it is, as its /proc is mounted with hidepid (ProtectProc= of its service)")
	ErrNoPIDFD   = errors.New("this system has no pidfd (Linux has, from 5.3 on): use hold=conn (redlock run)")
)

// UnknownUser is the uid of a process whose user /proc does not show.
const UnknownUser = -1

// Facts are what /proc shows about a process.
type Facts struct {
	UID     int           // real
	Kernel  bool          // it is a kernel thread
	Nested  bool          // it is in a PID namespace within the daemon's
	Started time.Duration // BootTime, in hundredths of a second, rounded down
}

// StartOf returns when the process with that id was started, or 0 if that is not visible.
func StartOf(pid int) time.Duration {
	f, err := FactsOf(pid)
	if err != nil {
		return 0
	}
	return f.Started
}

// OpenIf opens a pidfd of the process with that id if its facts pass a check.
func OpenIf(pid int, check func(Facts) error) (fd int, err error) {
	fd, err = Open(pid)
	if err != nil {
		return 0, err
	}
	f, err := FactsOf(pid)
	if !IsAlive(fd) { // the facts may be of the next process with that id
		err = ErrNoProcess
	}
	if err == nil {
		err = check(f)
	}
	if err != nil {
		Close(fd)
		return 0, err
	}
	return fd, nil
}

// OpenStartedBy opens a pidfd of the process with that id if it was started at then or before. A
// process that got the id later was started later. (The kernel reports hundredths of a second. So
// this fails only if all other ids are used within one.)
func OpenStartedBy(pid int, then time.Duration) (fd int, err error) {
	return OpenIf(pid, func(f Facts) error {
		if f.Started > then {
			return ErrNoProcess
		}
		return nil
	})
}
