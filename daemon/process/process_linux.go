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
	if f, err = statusOf(pid); err != nil {
		return f, err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err == nil {
		err = f.readStat(string(stat))
	}
	return f, processError(pid, err)
}

// statusOf reads the user, the parent and the ids.
func statusOf(pid int) (f Facts, err error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
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

// readStatus reads the real user, the parent and the ids.
func (f *Facts) readStatus(status string) error {
	f.UID = UnknownUser
	for line := range strings.Lines(status) {
		key, values, _ := strings.Cut(line, ":")
		if key != "Uid" && key != "PPid" && key != "NSpid" {
			continue
		}
		var numbers []int
		for _, field := range strings.Fields(values) {
			n, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("/proc/PID/status: %s: %w", key, err)
			}
			numbers = append(numbers, n)
		}
		switch {
		case key == "NSpid":
			f.IDs = numbers
		case len(numbers) == 0:
		case key == "Uid":
			f.UID = numbers[0]
		default:
			f.Parent = numbers[0]
		}
	}
	if f.UID == UnknownUser {
		return errors.New("/proc/PID/status: no user")
	}
	return nil
}
