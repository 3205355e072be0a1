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
	ErrUnseen    = errors.New("it is in a PID namespace that the daemon does not see")
	ErrNoPIDFD   = errors.New("this system has no pidfd (Linux has, from 5.3 on): use hold=conn (redlock run)")

	// ErrNotAbove: see OpenAbove.
	ErrNotAbove = errors.New("the process is neither that one nor one of its ancestors in its PID namespace")
)

// UnknownUser is the uid of a process whose user /proc does not show.
const UnknownUser = -1

// Facts are what /proc shows about a process.
type Facts struct {
	UID     int           // real
	Kernel  bool          // it is a kernel thread
	Parent  int           // 0: it has none, or the daemon does not see it
	IDs     []int         // its ids, one for each PID namespace from the daemon's inward to its own
	Started time.Duration // BootTime, in hundredths of a second, rounded down
}

// Nested reports whether the process is in a PID namespace within the daemon's.
func (f *Facts) Nested() bool { return len(f.IDs) > 1 }

// StartOf returns when the process with that id was started, or 0 if that is not visible.
func StartOf(pid int) time.Duration {
	f, err := FactsOf(pid)
	if err != nil {
		return 0
	}
	return f.Started
}

// OpenIf opens a pidfd of the process with that id if its facts pass a check. The id 0 stands for a
// process of a PID namespace that the daemon does not see.
func OpenIf(pid int, check func(Facts) error) (fd int, err error) {
	if pid == 0 {
		return 0, ErrUnseen
	}
	fd, err = Open(pid)
	if err != nil {
		return 0, err
	}
	if err := Check(fd, pid, check); err != nil {
		Close(fd)
		return 0, err
	}
	return fd, nil
}

// Check checks the facts of the process of a pidfd. pid is its id.
func Check(fd, pid int, check func(Facts) error) error {
	f, err := FactsOf(pid)
	if !IsAlive(fd) { // the facts may be of the next process with that id
		err = ErrNoProcess
	}
	if err == nil {
		err = check(f)
	}
	return err
}

// maxAbove is how many processes OpenAbove looks at.
const maxAbove = 64

// OpenAbove finds the process that the process of a pidfd calls pid, in its own PID namespace: that
// process itself or one of its ancestors. It returns a pidfd of it and its id for the daemon, and
// closes fd. id is the id of the process of fd. The error is ErrNotAbove if pid is neither.
//
// An ancestor is in the same PID namespace if it has as many ids: a process is never in a namespace
// outside of its parent's. And the parent of a process changes only when the parent ends, to a process
// that has lived meanwhile. So if the parent has the same id before and after its pidfd was opened, the
// pidfd is the parent's.
func OpenAbove(fd, id, pid int) (above, aboveID int, err error) {
	depth := 0
	for range maxAbove {
		f, err := lineage(fd, id)
		if depth == 0 {
			depth = len(f.IDs)
		}
		switch {
		case err != nil:
			Close(fd)
			return 0, 0, err
		case depth > 0 && len(f.IDs) == depth && f.IDs[depth-1] == pid:
			return fd, id, nil
		case len(f.IDs) < depth || f.Parent == 0:
			Close(fd)
			return 0, 0, ErrNotAbove
		}
		parent, err := Open(f.Parent)
		if errors.Is(err, ErrNoProcess) {
			continue // it has just ended, and another process is the parent now
		}
		if err != nil {
			Close(fd)
			return 0, 0, err
		}
		if now, err := lineage(fd, id); err != nil || now.Parent != f.Parent {
			Close(parent)
			continue // likewise; an error comes again
		}
		Close(fd)
		fd, id = parent, f.Parent
	}
	Close(fd)
	return 0, 0, ErrNotAbove
}

// lineage returns the parent and the ids of the process of a pidfd. pid is its id.
func lineage(fd, pid int) (f Facts, err error) {
	f, err = statusOf(pid)
	if !IsAlive(fd) { // they may be of the next process with that id
		err = ErrNoProcess
	}
	return f, err
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
