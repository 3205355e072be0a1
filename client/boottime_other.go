//go:build !linux

package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is the clock of the daemon's deadline= where there is no
// CLOCK_BOOTTIME: darwin's CLOCK_MONOTONIC, which goes on in sleep too and is
// the same in all processes.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("client: CLOCK_MONOTONIC cannot be read: " + err.Error())
	}
	return time.Duration(now.Nano())
}
