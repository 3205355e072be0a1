package main

import "golang.org/x/sys/unix"

// deadlineClock is the clock of the daemon's deadlines. It goes on while the host
// is suspended.
const deadlineClock = unix.CLOCK_BOOTTIME
