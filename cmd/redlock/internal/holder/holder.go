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
	isSet func() bool
}

func (h *Flag) Define(cmd *cobra.Command) {
	cmd.Flags().Var(flags.AnyNumber(&h.pid, "PID"), "pid", "the process PID holds it (default: the shell that calls redlock)")
	h.isSet = func() bool { return cmd.Flags().Changed("pid") }
}

// Process returns the pid of the holder. Without --pid it is the parent or, if that ends at once,
// the process above it. Process fails if the holder cannot be determined.
func (h *Flag) Process() (int, error) {
	switch parent := os.Getppid(); {
	case h.isSet() && h.pid > 0:
		return h.pid, nil
	case h.isSet():
		return 0, exit.Usagef("--pid %d is not a process", h.pid)
	case parent <= 0:
		return 0, exit.Usagef("the process that calls redlock is outside of this container: name the holder, as with --pid $$")
	default:
		pid, text := holderAbove(parent)
		if pid == 0 {
			return 0, exit.Usagef("%s: name the process that holds the lock, as with --pid $$", text)
		}
		return pid, nil
	}
}

// CheckParent fails if the parent that should hold the lock has ended.
func (h *Flag) CheckParent(pid int) error {
	if now, err := h.Process(); err == nil && now == pid {
		return nil
	}
	return exit.Errorf(exit.Conflict, "process %d, which should hold the lock, has ended", pid)
}
