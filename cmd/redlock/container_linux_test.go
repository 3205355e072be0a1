package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// In a PID namespace of its own, redlock run and redlock run --exec work. redlock lock says that
// redlock run does.
func TestOtherPIDNamespace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	_, socket := cmdtest.StartDaemon(t)
	const inside = "unshare --pid --fork --mount-proc sh -c '%; exit $?'"
	for script, test := range map[string]struct {
		code           int
		stdout, stderr string
	}{
		"redlock run job echo in":                                   {0, "in\n", ""},
		"redlock run --exec job sh -c \"echo in # $REDLOCK_FENCE\"": {0, "in\n", ""},
		"redlock lock job":                                          {exit.Denied, "", "process 1 cannot hold the lock: pid 1 lives as long as the machine or container: use redlock run, which works here"},
		"(redlock lock job; exit $?)":                               {exit.Usage, "", "redlockd knows processes by other numbers than this one does (in a container?): use redlock run, which works here\n"},
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
