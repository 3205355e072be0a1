//go:build !linux

package job

import "syscall"

// descendant is a process that the command has started. Only Linux shows them.
type descendant struct{ pid int }

func adoptOrphans() {}

func descendants([]descendant) []descendant { return nil }

func childEnded() bool { return false }

func signalProcesses([]descendant, syscall.Signal) (reached int) { return 0 }
