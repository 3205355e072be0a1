// Package boottime reads the clock on which leases are measured: the time since this host was
// booted, suspensions included. On Linux it is CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC. All
// processes of a host read the same clock, so the daemon can tell a client a deadline on it.
//
// Packages redlock and client, the daemon and the redlock command use this package, so that there is one
// clock. It imports golang.org/x/sys only, starts no goroutine, and never reads the time of day,
// which somebody may set.
package boottime
