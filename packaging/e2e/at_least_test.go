//go:build linux

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// redlock run --at-least returns the exit code at once. The lock stays taken for all hosts, also
// after kill -9 of redlock run and of the daemon.
func TestRunAtLeast(t *testing.T) {
	t.Parallel() // mostly waits
	const least = 4 * time.Second
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	one, other := newHost(t, cluster), newHost(t, cluster)
	daemon := one.serve()
	other.serve()
	before := redlock.BootTime()
	flags := []string{"run", "-n", "-t", "3s", "--at-least", least.String()}
	cmd := one.redlock(append(flags, "exited", "-c", "exit 7")...)
	if output, err := combined(cmd); cmd.ProcessState.ExitCode() != 7 {
		t.Fatalf("redlock run: %v, want the exit code of the command, 7:\n%s", err, output)
	}
	if took := redlock.BootTime() - before; took >= least {
		t.Errorf("redlock run took %v: it waited for --at-least", took)
	}
	killed := startCommand(t, one.redlock(append(flags, "killed", "-c", "echo up; exec sleep 60")...))
	if line := killed.line(); line != "up" {
		t.Fatalf("the command printed %q", line)
	}
	killed.kill()
	waitFor(t, "redlock list shows two locks as kept", func() bool {
		list, err := printed(one.redlock("list"))
		return err == nil && strings.Count(string(list), " kept ") == 2
	})
	daemon.kill()
	one.serve()
	for _, name := range []string{"exited", "killed"} {
		try := other.redlock("run", "-n", name, "true")
		if output, err := combined(try); try.ProcessState.ExitCode() != 1 {
			t.Errorf("%s on the other host: %v, want that it is taken:\n%s", name, err, output)
		}
	}
	for _, name := range []string{"exited", "killed"} {
		if output, err := combined(other.redlock("run", "-w", "20s", name, "true")); err != nil {
			t.Errorf("%s on the other host: %v\n%s", name, err, output)
		}
		if took := redlock.BootTime() - before; took < least {
			t.Errorf("%s is free %v after it was taken, want %v at least", name, took, least)
		}
	}
}
