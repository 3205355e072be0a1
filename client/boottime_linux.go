package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is the time since this host was booted, on CLOCK_BOOTTIME: the clock
// of the daemon's deadline=, which goes on while the host is suspended.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("client: CLOCK_BOOTTIME cannot be read: " + err.Error()) // in Linux since 2.6.39
	}
	return time.Duration(now.Nano())
}
