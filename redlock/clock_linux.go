package redlock

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the time since this host was booted, on CLOCK_BOOTTIME: it goes
// on while the host is suspended, as leases on the nodes do. CLOCK_MONOTONIC,
// on which time.Now runs, stands still then.
func BootTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("CLOCK_BOOTTIME cannot be read: " + err.Error()) // in Linux since 2.6.39
	}
	return time.Duration(now.Nano())
}
