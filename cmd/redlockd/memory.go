package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// These constants bound what may be allocated between two garbage collections, as a share of the
// memory in use. The share is small, because tens of thousands of leases need it beside their own
// memory. If little is in use, the share is larger, because collections cost time too.
const (
	leastPercent  = 12
	leastHeadroom = 6 << 20
	mostPercent   = 150 // with which Go collects nothing below 6 MB
)

// saveMemory sets Go's GOGC again after each garbage collection, for as long as the process
// runs. GOGC in the environment overrides it.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		adjustGC(100)
	}
}

// adjustGC sets GOGC, and runs again once a collection has found that sign is unused. was is the
// current GOGC.
func adjustGC(was int) {
	percent := percentFor(liveBytes())
	if percent != was {
		debug.SetGCPercent(percent)
	}
	sign := new(*byte) // without a pointer it could share a block with memory in use
	runtime.AddCleanup(sign, adjustGC, percent)
}

// percentFor returns the GOGC for the memory in use, in steps, so that a small change does not
// set it again.
func percentFor(live uint64) int {
	const step = 5
	percent := int(leastHeadroom * 100 / max(live, 1))
	return min(max(percent/step*step, leastPercent), mostPercent)
}

// liveBytes returns the memory that the last collection found in use; 0 before the first one.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
