package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// redlock run starts the threads that it needs to stop the command before it starts the command,
// which may use up all threads of the user.
func TestThreadsAreReserved(t *testing.T) {
	t.Parallel()
	const reserved = 12 // as in package job
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p, _ := cmdtest.RunPuppet(t, f.Socket)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < reserved {
		t.Errorf("%d threads while the command runs, want %d at least", len(threads), reserved)
	}
	p.WriteLine("exit 0")
	p.ExpectExit(0)
}
