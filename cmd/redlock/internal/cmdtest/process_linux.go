package cmdtest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func IsStopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") T ")
}

// AwaitStopped sends SIGSTOP to a process, and waits until it has stopped.
func AwaitStopped(t *testing.T, pid int) {
	t.Helper()
	syscall.Kill(pid, syscall.SIGSTOP)
	Await(t, "a stopped process", func() bool { return IsStopped(pid) })
}
