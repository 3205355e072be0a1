//go:build !linux

package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since this host was booted.
func Now() time.Duration { return Exact() }

// Exact returns the time since this host was booted, from CLOCK_MONOTONIC. On macOS that clock runs
// while the host is suspended, and is the same in all processes.
func Exact() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("CLOCK_MONOTONIC cannot be read: " + err.Error())
	}
	return time.Duration(now.Nano())
}
