package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// checkClock looks at how this host's clock is kept: the kernel tells.
func checkClock() []finding {
	var clock unix.Timex // Modes 0: nothing is changed
	state, err := unix.Adjtimex(&clock)
	if err != nil {
		return []finding{{"clock", warning, "the kernel does not tell how this host's clock is kept: " + err.Error(), "run redlock doctor outside of this container"}}
	}
	return clockFindings(state, &clock)
}

// Of adjtimex(2), and what the drift allowance of leases is.
const (
	usualTick    = 10_000  // microseconds
	freqUnit     = 1 << 16 // Freq is in parts per million, with 16 bits behind the point
	driftPercent = 1.0
)

func clockFindings(state int, clock *unix.Timex) (findings []finding) {
	if state == unix.TIME_ERROR || clock.Status&unix.STA_UNSYNC != 0 {
		findings = append(findings, finding{"clock", warning, "this host's clock is not synchronised, and will be stepped when somebody sets it right; leases bear that, nodes on this host do not",
			"run chronyd, or another NTP client that slews the clock by less than 1 % (chronyd with maxslewrate 5000, ntpd -x)"})
	}
	if rate := slewPercent(clock); rate > driftPercent || rate < -driftPercent {
		findings = append(findings, finding{"clock", bad, fmt.Sprintf("this host's clock is slewed by %.1f %%, and leases allow for a drift of %.0f %%", rate, driftPercent),
			"slew it by less (chronyd with maxslewrate 5000), and wait until it is right"})
	}
	if findings == nil {
		findings = []finding{{"clock", ok, "this host's clock is synchronised", ""}}
	}
	return findings
}

// slewPercent is by how much the clock is made to run faster.
func slewPercent(clock *unix.Timex) float64 {
	tick := float64(clock.Tick-usualTick) / usualTick
	freq := float64(clock.Freq) / freqUnit / 1e6
	return 100 * (tick + freq)
}
