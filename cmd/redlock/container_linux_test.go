package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// In a PID namespace of its own, redlock run and redlock lock work, also for the script that is process
// 1. A process that is not above redlock cannot hold the lock there: the error says what works.
func TestOtherPIDNamespace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	_, socket := cmdtest.StartDaemon(t)
	const inside = "unshare --pid --fork --mount-proc sh -c '%; exit $?'"
	const held = "(redlock run -n job true || echo taken)"
	const free = "redlock run -w 60 job echo free"
	for script, test := range map[string]struct {
		code           int
		stdout, stderr string
	}{
		"redlock run job echo in":                                   {0, "in\n", ""},
		"redlock run --exec job sh -c \"echo in # $REDLOCK_FENCE\"": {0, "in\n", ""},
		"redlock lock job && redlock check job && " + held + " && redlock extend job && redlock unlock job && " + free: {0, "taken\nfree\n", ""},
		"(redlock lock job && redlock check job && " + held + ") && " + free:                                           {0, "taken\nfree\n", ""},
		"(redlock lock --pid $$ job) && " + held + " && redlock unlock job && " + free:                                 {0, "taken\nfree\n", ""},
		"sh -c \"redlock lock job && " + held + "; true\" && " + free:                                                  {0, "taken\nfree\n", ""},
		"sleep 1000 & redlock lock --pid $! job":                                                                       {exit.Usage, "", ": redlockd runs in another PID namespace, and there accepts only the process that calls redlock and those above it: use redlock run, which works here\n"},
	} {
		p := startScript(t, "sh", socket, strings.Replace(inside, "%", script, 1))
		if out := p.ReadAll(); out != test.stdout {
			t.Errorf("%s: prints %q, want %q", script, out, test.stdout)
		}
		p.ExpectExit(test.code)
		if !strings.Contains(p.Stderr(), test.stderr) {
			t.Errorf("%s: stderr is %q, want %q in it", script, p.Stderr(), test.stderr)
		}
	}
}
