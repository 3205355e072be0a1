package term

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// HasTerminal reports whether this process has a controlling terminal that has not hung up.
func HasTerminal() bool {
	_, err := foreground()
	return err == nil
}

// InForeground reports whether this process is in the terminal's foreground process group.
func InForeground() bool {
	group, err := foreground()
	return err == nil && group == syscall.Getpgrp()
}

// LeadsSession reports whether this process leads its session, like a login shell or a command
// of ssh -t.
func LeadsSession() bool {
	session, err := unix.Getsid(0)
	return err == nil && session == os.Getpid()
}

// UnderJobControl reports whether a shell may be waiting for this process to stop.
func UnderJobControl() bool { return HasTerminal() && !LeadsSession() }

// foreground returns the foreground process group of the controlling terminal. It fails if there is
// none.
func foreground() (int, error) {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(tty)
	return unix.IoctlGetInt(tty, unix.TIOCGPGRP)
}

// Writable reports whether a line can be written without blocking. A terminal stopped by Ctrl-S and
// a full pipe block. An output without a file descriptor never blocks.
func Writable(out io.Writer) (now bool) {
	now = true
	Descriptor(out, func(fd int) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(poll, 0)
		now = err == nil && n == 1 && poll[0].Revents&unix.POLLOUT != 0
	})
	return now
}

// HasNoReader reports whether nothing reads an output any more: the other end of the pipe is closed, or the
// terminal hung up.
func HasNoReader(out io.Writer) (closed bool) {
	Descriptor(out, func(fd int) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(poll, 0)
		closed = err == nil && n == 1 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return closed
}

// Descriptor calls use with the file descriptor of a stream, if it has one. (File.Fd would make
// the descriptor blocking, also for other processes that share it.)
func Descriptor(stream any, use func(fd int)) {
	file, ok := stream.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { use(int(fd)) }) // fails if the file is closed
}
