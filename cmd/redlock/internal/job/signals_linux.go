package job

import (
	"os"
	"syscall"
)

// fatalHere are the fatal signals that only Linux has, including the realtime signals that C
// libraries do not reserve. It excludes signals that concern only this process (SIGSEGV, SIGXFSZ,
// SIGPROF, …), and SIGURG, which Go's runtime sends to itself.
var fatalHere = append(realtime(35, 64), syscall.SIGPWR, syscall.SIGIO, syscall.SIGSTKFLT,
	syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGTRAP, syscall.SIGSYS)

func realtime(first, last syscall.Signal) (all []os.Signal) {
	for sig := first; sig <= last; sig++ {
		all = append(all, sig)
	}
	return all
}

// diesWithParent makes the kernel kill the command when the thread that started it ends, so that
// the command does not outlive this process and the lock.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
