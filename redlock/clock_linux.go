package redlock

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BootTime is the time since this host was booted, on CLOCK_BOOTTIME: it goes
// on while the host is suspended, as leases on the nodes do. CLOCK_MONOTONIC,
// on which time.Now runs, stands still then.
//
// Go reads CLOCK_MONOTONIC without a system call, but not CLOCK_BOOTTIME. So
// the difference of the two, which changes only in a suspension, is measured
// and used for offsetAge. A suspension in between is noticed that much later,
// which is no more than what any program may be suspended for between reading
// a clock and acting on it.
func BootTime() time.Duration {
	now := time.Since(processStart)
	if seen := bootOffset.Load(); seen != nil && now-seen.at < offsetAge {
		return now + seen.offset
	}
	return measureBootTime()
}

const (
	offsetAge      = time.Millisecond
	offsetAccuracy = 50 * time.Microsecond // 1/40 of the drift allowance's constant part
)

var (
	processStart = time.Now()
	bootOffset   atomic.Pointer[bootOffsetSeen]
)

// bootOffsetSeen is how far CLOCK_BOOTTIME was ahead of the time since
// processStart, and when that was measured.
type bootOffsetSeen struct{ offset, at time.Duration }

// measureBootTime reads the clock, and remembers its offset if the reading was
// not interrupted.
func measureBootTime() time.Duration {
	before := time.Since(processStart)
	var boot unix.Timespec
	// Raw: the scheduler need not be told of a call that is over at once.
	_, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&boot)), 0)
	if err != 0 {
		panic("CLOCK_BOOTTIME cannot be read: " + err.Error()) // in Linux since 2.6.39
	}
	after := time.Since(processStart)
	now := time.Duration(boot.Nano())
	if after-before < offsetAccuracy {
		bootOffset.Store(&bootOffsetSeen{offset: now - after, at: after})
	}
	return now
}
