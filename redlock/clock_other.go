//go:build !linux

package redlock

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the time since this host was booted. Darwin's CLOCK_MONOTONIC
// goes on while the host is suspended, as CLOCK_BOOTTIME does on Linux.
func BootTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("CLOCK_MONOTONIC cannot be read: " + err.Error())
	}
	return time.Duration(now.Nano())
}
