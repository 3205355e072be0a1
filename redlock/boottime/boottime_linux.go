package boottime

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now returns the time since this host was booted. It returns at most 50 µs less than [Exact].
//
// Go reads CLOCK_MONOTONIC without a system call, but not CLOCK_BOOTTIME. So Now measures the
// difference between the two clocks, which only a suspension changes, and caches it for a
// millisecond. Now may therefore notice a suspension a millisecond late. A program can also be
// suspended between reading a clock and acting on it, so this adds no new case.
func Now() time.Duration {
	now := time.Since(processStart)
	if known := cachedOffset.Load(); known != nil && now-known.at < offsetAge {
		return now + known.offset
	}
	return measure()
}

const (
	offsetAge      = time.Millisecond
	offsetAccuracy = 50 * time.Microsecond // 1/40 of the constant part of the drift allowance
)

var (
	processStart = time.Now()
	cachedOffset atomic.Pointer[clockOffset]
)

// clockOffset is how far CLOCK_BOOTTIME was ahead of the time since processStart, and when that
// was measured.
type clockOffset struct{ offset, at time.Duration }

// measure reads the clock. It caches the offset unless something interrupted the reading.
func measure() time.Duration {
	before := time.Since(processStart)
	now := Exact()
	after := time.Since(processStart)
	if after-before < offsetAccuracy {
		cachedOffset.Store(&clockOffset{offset: now - after, at: after})
	}
	return now
}

// Exact returns the time since this host was booted. It makes a system call.
func Exact() time.Duration {
	var now unix.Timespec
	// RawSyscall does not notify the scheduler. That is safe because the call never blocks.
	_, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&now)), 0)
	if err != 0 {
		panic("CLOCK_BOOTTIME cannot be read: " + err.Error()) // Linux has the clock since 2.6.39
	}
	return time.Duration(now.Nano())
}
