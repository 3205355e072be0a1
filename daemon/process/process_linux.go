package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Open opens a pidfd of the process that has the id pid now.
func Open(pid int) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ESRCH):
		err = ErrNoProcess
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // the latter from Linux 6.14 on
		err = ErrThread
	case errors.Is(err, unix.ENOSYS):
		err = ErrNoPIDFD
	default:
		err = fmt.Errorf("pidfd_open: %w", err)
	}
	return 0, err
}

// IsAlive reports whether the process of a pidfd has not ended. If the kernel has no memory to
// answer, the process counts as alive: otherwise the daemon would release its leases.
func IsAlive(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n <= 0
		}
	}
}

// Close closes a pidfd. It cannot fail, because nothing was written to the pidfd.
func Close(fd int) { unix.Close(fd) }

// FactsOf reads the facts of a process from /proc.
func FactsOf(pid int) (f Facts, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err == nil {
		err = f.readStat(string(stat))
	}
	if err != nil {
		return f, processError(pid, err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err == nil {
		err = f.readStatus(string(status))
	}
	return f, processError(pid, err)
}

// processError maps an error of /proc to an error of this package, or returns it unchanged.
func processError(pid int, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return ErrHidden
	case errors.Is(err, fs.ErrNotExist) && unix.Kill(pid, 0) != unix.ESRCH:
		return ErrHidden
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return ErrNoProcess
	}
	return err
}

// Fields of /proc/PID/stat, counted from the one after the name (see proc_pid_stat(5)), and
// PF_KTHREAD of include/linux/sched.h.
const (
	statFlags    = 6
	statStart    = 19
	kernelThread = 0x00200000
	tick         = 10 * time.Millisecond // USER_HZ is 100 on all platforms of Go
)

// readStat reads the fields after the name, which may contain anything.
func (f *Facts) readStat(stat string) error {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= statStart {
		return fmt.Errorf("/proc/PID/stat: %d fields are too few", len(fields))
	}
	flags, err := strconv.ParseUint(fields[statFlags], 10, 64)
	if err != nil {
		return fmt.Errorf("/proc/PID/stat: flags: %w", err)
	}
	start, err := strconv.ParseInt(fields[statStart], 10, 64)
	if err != nil {
		return fmt.Errorf("/proc/PID/stat: start time: %w", err)
	}
	f.Kernel = flags&kernelThread != 0
	f.Started = time.Duration(start) * tick
	return nil
}

// readStatus reads the real user, and whether the process has several ids: one for each PID
// namespace, from the daemon's inward.
func (f *Facts) readStatus(status string) (err error) {
	f.UID = UnknownUser
	for line := range strings.Lines(status) {
		key, values, _ := strings.Cut(line, ":")
		switch fields := strings.Fields(values); {
		case key == "Uid" && len(fields) > 0:
			f.UID, err = strconv.Atoi(fields[0])
		case key == "NSpid":
			f.Nested = len(fields) > 1
		}
	}
	if err != nil || f.UID == UnknownUser {
		return fmt.Errorf("/proc/PID/status: no user: %w", err)
	}
	return nil
}
