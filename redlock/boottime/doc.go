// Package boottime reads the clock of all lease deadlines: the time since this host was booted,
// suspensions included. On Linux it is CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC. All processes of a
// host read the same clock, so the daemon can tell a client a deadline on it.
//
// Packages redlock and client, the daemon and the redlock command all use this package. It imports
// golang.org/x/sys only, starts no goroutine, and never reads the time of day, which an operator
// may set.
package boottime
