// Package job takes a lock, runs a command under it, and stops the command if the lock is
// lost.
//
// job.go takes and releases the lock. waiting.go explains a long wait. child.go starts the command
// and watches it, its lease and the signals in one goroutine. The other files are what child.go
// needs from the system: signals, a timer on the clock of deadlines, the descendants of the
// command, and the terminal's job control.
//
// The subcommands run and lock call it. It never extends a lease: redlockd does. It writes
// to stderr only if that cannot block, because a blocked write would delay SIGKILL.
package job
