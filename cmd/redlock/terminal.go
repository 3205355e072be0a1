package main

import (
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
