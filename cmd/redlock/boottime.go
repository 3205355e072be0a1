package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is the time now, on the clock of Lease.DeadlineBoottime.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(deadlineClock, &now); err != nil {
		panic("the clock of deadlines cannot be read: " + err.Error()) // in Linux since 2.6.39
	}
	return time.Duration(now.Nano())
}
