package main

import (
	"fmt"
	"os"
	"testing"
)

// A command that takes all processes and threads that are to be had leaves redlock run
// those that it needs to stop it: they are there before it starts.
func TestThreadsAreReserved(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	p, _ := runPuppet(t, f.socket)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < spareThreads {
		t.Errorf("%d threads while the command runs, want %d at least", len(threads), spareThreads)
	}
	p.tell("exit 0")
	p.ends(0)
}
