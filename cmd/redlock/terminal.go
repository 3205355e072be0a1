package main

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasTerminal tells whether this process has a controlling terminal, one that
// has not hung up.
func hasTerminal() bool {
	_, err := foreground()
	return err == nil
}

// inForeground tells whether this process is in the terminal's foreground group.
func inForeground() bool {
	group, err := foreground()
	return err == nil && group == syscall.Getpgrp()
}

// leadsSession tells whether this process leads its session, as a login shell
// does, or what ssh -t has started.
func leadsSession() bool {
	session, err := unix.Getsid(0)
	return err == nil && session == os.Getpid()
}

// underJobControl tells whether there may be a shell that waits for this process
// to stop, and to be the foreground again.
func underJobControl() bool { return hasTerminal() && !leadsSession() }

// foreground is the foreground process group of the controlling terminal. It
// errs where there is none.
func foreground() (int, error) {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(tty)
	return unix.IoctlGetInt(tty, unix.TIOCGPGRP)
}

// writable tells whether a line can be written to out without waiting for
// whoever reads there: a terminal that was told to be still (Ctrl-S) takes none, nor does
// a pipe that nobody reads. What has no file descriptor takes all.
func writable(out io.Writer) (now bool) {
	now = true
	descriptor(out, func(fd int) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(poll, 0)
		now = err == nil && n == 1 && poll[0].Revents&unix.POLLOUT != 0
	})
	return now
}

// descriptor shows the file descriptor of a stream to use, if it has one. (File.Fd
// would make it a blocking one, for those as well that we share it with.)
func descriptor(stream any, use func(fd int)) {
	file, ok := stream.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { use(int(fd)) }) // it fails where the file is closed
}
