package holder

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
)

// Flag is --pid: the process that holds the lock. The default is the parent process.
type Flag struct {
	pid   int
	given func() bool
}

func (h *Flag) Define(cmd *cobra.Command) {
	cmd.Flags().Var(flags.AnyNumber(&h.pid, "PID"), "pid", "the process PID holds it (default: the one that calls redlock, such as the shell)")
	h.given = func() bool { return cmd.Flags().Changed("pid") }
}

func (h *Flag) Process() (int, error) {
	pid := h.pid
	if !h.given() {
		pid = os.Getppid()
	}
	switch {
	case pid > 0:
		return pid, nil
	case h.given():
		return 0, exit.Usagef("--pid %d is no process", pid)
	}
	return 0, exit.Usagef("the process that calls redlock is outside of this container: say with --pid which one holds the lock")
}

// CheckParent errs if the parent that should hold the lock has ended.
func (h *Flag) CheckParent(pid int) error {
	if h.given() || os.Getppid() == pid {
		return nil
	}
	return exit.Errorf(exit.Conflict, "process %d, which was to hold the lock, has ended", pid)
}
