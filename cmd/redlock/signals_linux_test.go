package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// Signals that only Linux has, and rare signals, end the command as they would without
// redlock run.
func TestRareSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{
		35, 64, syscall.SIGPWR, syscall.SIGIO, syscall.SIGSTKFLT, syscall.SIGVTALRM, syscall.SIGXCPU,
		syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGABRT,
	} {
		t.Run(fmt.Sprint(int(sig)), func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Granting())
			p := cmdtest.StartCommand(t, cmdtest.Detach(cmdtest.Command(t, cmdtest.TestBinary, cmdtest.RunArgs(nil, "sh", "-c", "ulimit -c 0; echo up $$; exec cat")...)), cmdtest.RoleRedlock, f.Socket)
			p.AwaitPuppet()
			p.Signal(sig)
			p.ExpectExit(128 + int(sig))
		})
	}
}

// If the reader of stderr has closed it, no process ends because of that, and the exit code stays
// the same.
func TestStderrIsGone(t *testing.T) {
	t.Parallel()
	r, w := cmdtest.PipeForTest(t)
	r.Close()
	defer w.Close()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	run := cmdtest.RunArgs([]string{"--verbose"}, "sh", "-c", "exit 6")
	cmd := cmdtest.Command(t, "sh", append([]string{"-c", `exec "$@" 2>&3 3>&-`, "sh", cmdtest.TestBinary}, run...)...)
	cmd.ExtraFiles = []*os.File{w}
	cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, f.Socket).ExpectExit(6)
}
