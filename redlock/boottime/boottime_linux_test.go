package boottime

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNowIsCLOCK_BOOTTIME checks that the cached offset keeps Now within its accuracy.
func TestNowIsCLOCK_BOOTTIME(t *testing.T) {
	read := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			t.Fatal(err)
		}
		return time.Duration(now.Nano())
	}
	last := Now()
	for range 100_000 {
		before, now, after := read(), Now(), read()
		if now < before-offsetAccuracy || now > after {
			t.Fatalf("Now() = %v between two readings of the clock, %v and %v", now, before, after)
		}
		if now < last-offsetAccuracy {
			t.Fatalf("Now() = %v after %v", now, last)
		}
		last = now
	}
}

// TestNowNoticesSuspension checks that an offset from before a suspension is not used for longer
// than offsetAge.
func TestNowNoticesSuspension(t *testing.T) {
	measured := *measuredOffset(t)
	wrong := measured
	wrong.offset -= time.Hour // as if the host had been suspended afterwards
	cachedOffset.Store(&wrong)
	deadline := time.Now().Add(10 * time.Second)
	for Now() < measured.at+measured.offset {
		if time.Now().After(deadline) {
			t.Fatal("the offset from before the suspension is still used after 10 s")
		}
	}
	if used := time.Since(processStart) - measured.at; used > time.Second {
		t.Errorf("the offset from before the suspension was used for %v", used)
	}
}

func measuredOffset(t *testing.T) *clockOffset {
	t.Helper()
	for range 1_000 {
		cachedOffset.Store(nil)
		measure()
		if measured := cachedOffset.Load(); measured != nil {
			return measured
		}
	}
	t.Fatal("the clock was never read without an interruption")
	return nil
}

func TestExactIsNeverEarly(t *testing.T) {
	for range 1_000 {
		var before unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &before); err != nil {
			t.Fatal(err)
		}
		if now := Exact(); now < time.Duration(before.Nano()) {
			t.Fatalf("Exact() = %v, after the clock was %v", now, time.Duration(before.Nano()))
		}
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
