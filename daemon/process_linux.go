package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/access"
)

// openPID is a pidfd of the process that has the number pid now.
func openPID(pid int) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ESRCH):
		err = errNoProcess
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // the latter from Linux 6.14 on
		err = errThread
	case errors.Is(err, unix.ENOSYS):
		err = errNoPIDFD
	default:
		err = fmt.Errorf("pidfd_open: %w", shortage(err))
	}
	return 0, err
}

// isAlive tells whether the process of a pidfd has not ended. Where the kernel cannot
// say (for want of memory) it counts as living: what it holds would be given away.
func isAlive(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n <= 0
		}
	}
}

func closeFD(fd int) { unix.Close(fd) } // a pidfd has nothing that could fail to be written

// factsOf reads what /proc tells of a process.
func factsOf(pid int) (f facts, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err == nil {
		err = f.readStat(string(stat))
	}
	if err != nil {
		return f, hidden(pid, err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err == nil {
		err = f.readStatus(string(status))
	}
	return f, hidden(pid, err)
}

// hidden is what an error of /proc means.
func hidden(pid int, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return errHidden
	case errors.Is(err, fs.ErrNotExist) && unix.Kill(pid, 0) != unix.ESRCH:
		return errHidden
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return errNoProcess
	}
	return shortage(err)
}

// Fields of /proc/PID/stat, counted from the one behind the name, and what they
// mean: proc_pid_stat(5), and PF_KTHREAD of include/linux/sched.h.
const (
	statFlags    = 6
	statStart    = 19
	kernelThread = 0x00200000
	tick         = 10 * time.Millisecond // USER_HZ is 100 on all that Go runs on
)

// readStat takes what stands behind the name, which may contain anything.
func (f *facts) readStat(stat string) error {
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
	f.kernel = flags&kernelThread != 0
	f.started = time.Duration(start) * tick
	return nil
}

// readStatus takes the real user, and whether the process has several numbers:
// one for each PID namespace from the daemon's on.
func (f *facts) readStatus(status string) (err error) {
	f.uid = access.UnknownUser
	for line := range strings.Lines(status) {
		key, values, _ := strings.Cut(line, ":")
		switch fields := strings.Fields(values); {
		case key == "Uid" && len(fields) > 0:
			f.uid, err = strconv.Atoi(fields[0])
		case key == "NSpid":
			f.nested = len(fields) > 1
		}
	}
	if err != nil || f.uid == access.UnknownUser {
		return fmt.Errorf("/proc/PID/status: no user: %w", err)
	}
	return nil
}

// watcher tells which pidfds are of processes that have ended. It waits as
// connections do: no thread is blocked by it.
type watcher struct {
	file *os.File // of epoll
	raw  syscall.RawConn
	fd   int
}

func newWatcher() (w watcher, err error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return w, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // has Go's poller take it
		unix.Close(fd)
		return w, fmt.Errorf("epoll: %w", err)
	}
	w = watcher{file: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	w.raw, err = w.file.SyscallConn()
	return w, err
}

func (w watcher) add(fd int) error {
	err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll: %w", shortage(err))
	}
	return nil
}

// remove cannot fail for a pidfd that was added and is open.
func (w watcher) remove(fd int) { unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// wait blocks until there are some, or is false once the watcher is closed. They
// are told of again until they are removed.
func (w watcher) wait() (fds []int, open bool) {
	var events [128]unix.EpollEvent
	var n int
	var failed error
	closed := w.raw.Read(func(fd uintptr) bool {
		n, failed = unix.EpollWait(int(fd), events[:], 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
	if closed != nil || failed != nil {
		return nil, false
	}
	for _, event := range events[:n] {
		fds = append(fds, int(event.Fd))
	}
	return fds, true
}

// close ends wait.
func (w watcher) close() { w.file.Close() } // nothing was written
