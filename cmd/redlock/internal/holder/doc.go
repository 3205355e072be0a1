// Package holder finds the process that holds a lock of redlock lock, and its lease.
//
// It owns the flag --pid, the search for the shell that called redlock, and the lookup of a
// lease by process or, under redlock run, by the environment. The subcommands lock, check,
// extend, beat and unlock use it. It never takes a lock.
package holder
