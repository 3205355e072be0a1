package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/boottime"
)

// BootTime returns the time since this host was booted: the clock of all deadlines of this package.
// It runs while the host is suspended, as the expiry of keys on the nodes does. (time.Now measures
// on CLOCK_MONOTONIC, which stops then.)
func BootTime() time.Duration { return boottime.Now() }
