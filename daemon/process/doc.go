// Package process watches processes of this host through pidfds, and reads their facts from /proc. A
// process id names a process only while it lives. A pidfd always refers to the same process, never
// to a later one with the same id.
//
// Package session calls it for leases that a process holds (hold=pid).
//
// It knows neither leases nor rights of users. The caller decides which user may name which process.
package process
