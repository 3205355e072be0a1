package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{
		0:        150,
		1 << 20:  150,
		4 << 20:  150,
		6 << 20:  100,
		10 << 20: 60,
		20 << 20: 30,
		40 << 20: 15,
		60 << 20: 12,
		1 << 40:  12,
	} {
		if got := percentFor(live); got != want {
			t.Errorf("with %d bytes in use: GOGC %d, want %d", live, got, want)
		}
	}
}

// GOGC follows the memory in use, from one collection to the next.
func TestAdjustGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	adjustGC(100)
	ballast := make([]byte, 64<<20)
	awaitPercent(t, leastPercent)
	runtime.KeepAlive(ballast)
	awaitPercent(t, percentFor(4<<20))
}

// awaitPercent collects garbage until GOGC is want.
func awaitPercent(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		runtime.GC()
		gogc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(gogc)
		got := int(gogc[0].Value.Uint64())
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d after two minutes of collections, want %d", got, want)
		}
		runtime.Gosched() // the cleanup has a goroutine of its own
	}
}
