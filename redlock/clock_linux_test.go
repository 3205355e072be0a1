package redlock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBootTimeIsCLOCK_BOOTTIME: the remembered offset never leads further away
// from the clock than its accuracy.
func TestBootTimeIsCLOCK_BOOTTIME(t *testing.T) {
	read := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			t.Fatal(err)
		}
		return time.Duration(now.Nano())
	}
	last := BootTime()
	for range 100_000 {
		before, now, after := read(), BootTime(), read()
		if now < before-offsetAccuracy || now > after {
			t.Fatalf("BootTime() = %v between two readings of the clock, %v and %v", now, before, after)
		}
		if now < last-offsetAccuracy {
			t.Fatalf("BootTime() = %v after %v", now, last)
		}
		last = now
	}
}

// TestBootTimeNoticesASuspension: an offset that a suspension made wrong is
// not used for longer than offsetAge.
func TestBootTimeNoticesASuspension(t *testing.T) {
	seen := *bootOffsetNow(t)
	wrong := seen
	wrong.offset -= time.Hour // as if the host had been suspended since
	bootOffset.Store(&wrong)
	deadline := time.Now().Add(10 * time.Second)
	for BootTime() < seen.at+seen.offset {
		if time.Now().After(deadline) {
			t.Fatal("the offset from before the suspension is used for ever")
		}
	}
	if used := time.Since(processStart) - seen.at; used > time.Second {
		t.Errorf("the offset from before the suspension was used for %v", used)
	}
}

func bootOffsetNow(t *testing.T) *bootOffsetSeen {
	t.Helper()
	for range 1_000 {
		bootOffset.Store(nil)
		measureBootTime()
		if seen := bootOffset.Load(); seen != nil {
			return seen
		}
	}
	t.Fatal("the clock was never read without an interruption")
	return nil
}

func BenchmarkBootTime(b *testing.B) {
	for b.Loop() {
		BootTime()
	}
}
