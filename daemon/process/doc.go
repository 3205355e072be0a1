// Package process watches processes of this host through pidfds, and reads what /proc tells of
// them. A number stands for a process only as long as that lives. A pidfd stays that of one
// process: the next process with the same number is never taken for it.
//
// Package session calls it for leases that a process holds (hold=pid).
//
// It knows neither leases nor users' rights: who may name which process is the caller's policy.
package process
