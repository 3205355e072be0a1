//go:build !linux

package main

import "golang.org/x/sys/unix"

// deadlineClock is the clock of the daemon's deadlines where there is no
// CLOCK_BOOTTIME: darwin's, which goes on in sleep too.
const deadlineClock = unix.CLOCK_MONOTONIC
