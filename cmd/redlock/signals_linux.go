package main

import (
	"os"
	"syscall"
)

// deadlyHere are further deadly signals that Linux has, the realtime ones among
// them, without those that C libraries keep for themselves. What is missing says
// something of this process alone (SIGSEGV, SIGXFSZ, SIGPROF, …), or is what Go's
// runtime sends itself (SIGURG).
var deadlyHere = append(realtime(35, 64), syscall.SIGPWR, syscall.SIGIO, syscall.SIGSTKFLT,
	syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGTRAP, syscall.SIGSYS)

func realtime(first, last syscall.Signal) (all []os.Signal) {
	for sig := first; sig <= last; sig++ {
		all = append(all, sig)
	}
	return all
}

// diesWithParent has the kernel kill the command when the thread that started it
// ends, so that it does not outlive this process, and so the lock.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
