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
	// Those with -hour are still taken however long this test takes; the others become free.
	exit := func(name, least string) {
		cmd := one.redlock("run", "-n", "-t", "3s", "--at-least", least, name, "-c", "exit 7")
		if output, err := combined(cmd); cmd.ProcessState.ExitCode() != 7 {
			t.Fatalf("redlock run: %v, want the exit code of the command, 7:\n%s", err, output)
		}
	}
	killed := func(name, least string) {
		run := startCommand(t, one.redlock("run", "-n", "-t", "3s", "--at-least", least, name, "-c", "echo up; exec sleep 60"))
		if line := run.line(); line != "up" {
			t.Fatalf("the command printed %q", line)
		}
		run.kill()
	}
	exit("exited-hour", "1h") // it does not wait for --at-least
	killed("killed-hour", "1h")
	before := redlock.BootTime()
	exit("exited", least.String())
	killed("killed", least.String())
	waitFor(t, "redlock list shows both as kept", func() bool {
		list, err := printed(one.redlock("list"))
		return err == nil && hasKept(string(list), "exited-hour") && hasKept(string(list), "killed-hour")
	})
	daemon.kill()
	one.serve()
	for _, name := range []string{"exited", "killed"} {
		try := other.redlock("run", "-n", name+"-hour", "true")
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

// hasKept reports whether redlock list shows a lock as kept.
func hasKept(list, name string) bool {
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, name+" ") {
			return strings.Contains(line, " kept ")
		}
	}
	return false
}
