package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// checkClock asks the kernel how it adjusts this host's clock.
func checkClock() []Finding {
	var clock unix.Timex // Modes is 0, so nothing is changed
	state, err := unix.Adjtimex(&clock)
	if err != nil {
		return []Finding{{"clock", Warning, "the kernel does not say how this host's clock is kept: " + err.Error(), "run redlock doctor outside of this container"}}
	}
	return clockFindings(state, &clock)
}

// Units of adjtimex(2), and the drift that leases allow for.
const (
	usualTick    = 10_000  // microseconds
	freqUnit     = 1 << 16 // Freq is in parts per million, with 16 fractional bits
	driftPercent = 1.0
)

func clockFindings(state int, clock *unix.Timex) (findings []Finding) {
	if state == unix.TIME_ERROR || clock.Status&unix.STA_UNSYNC != 0 {
		findings = append(findings, Finding{"clock", Warning, "this host's clock is not synchronised, and may be stepped later; leases tolerate that, nodes on this host do not",
			"run chronyd, or another NTP client that slews the clock by less than 1 % (chronyd with maxslewrate 5000, ntpd -x)"})
	}
	// By how many percent the kernel speeds the clock up.
	if rate := 100 * (float64(clock.Tick-usualTick)/usualTick + float64(clock.Freq)/freqUnit/1e6); rate > driftPercent || rate < -driftPercent {
		findings = append(findings, Finding{"clock", Bad, fmt.Sprintf("this host's clock is slewed by %.1f %%, but leases allow for a drift of %.0f %%", rate, driftPercent),
			"slew it by less (chronyd with maxslewrate 5000), and wait until it is right"})
	}
	if findings == nil {
		findings = []Finding{{"clock", OK, "this host's clock is synchronised", ""}}
	}
	return findings
}

// isOnDisk reports whether a directory is on a disk, and not in memory.
func isOnDisk(dir string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return false // checkSocket reports the reason
	}
	return fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC
}
