package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// If the limit on open files is too low, redlock prints one line and exits with code 71. It
// does not print a stack trace of Go.
func TestTightLimitOfFiles(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	for _, limit := range []string{"8", "12"} {
		p := cmdtest.StartCommand(t, cmdtest.Command(t, "sh", "-c", `ulimit -n "$1"; shift; exec "$@"`, "sh", limit, cmdtest.TestBinary, "run", "job", "true"), cmdtest.RoleRedlock, f.Socket)
		p.ExpectExit(exit.System)
		const want = "more files, and redlock needs 10: raise the limit (ulimit -n)"
		if said := p.Stderr(); !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("ulimit -n %s: stderr is %q, want one line with %q", limit, said, want)
		}
	}
}
