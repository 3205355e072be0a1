//go:build linux

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// redlock extend may shorten the lease time below the time that redlock run had reserved for ending
// the command. The command still goes on.
func TestExtendToLessUnderRun(t *testing.T) {
	t.Parallel() // mostly waits
	h, _, _ := dev(t)
	output, err := combined(h.redlock("run", "-t", "10s", "job", "sh", "-c", `"$0" extend -t 2s && sleep 11 && echo done`, filepath.Join(binaries, "redlock")))
	if err != nil || !strings.HasSuffix(string(output), "done\n") {
		t.Errorf("%v: %s", err, output)
	}
}

// bash replaces itself with the last command of bash -c. Then redlock itself takes the lock, and
// has another parent.
func TestLastCommandOfBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash, which replaces itself with the last command")
	}
	h, _, _ := dev(t)
	for verb, want := range map[string]string{"unlock": "", "check": "", "extend": "", "beat": ""} {
		cmd := h.redlock()
		cmd.Path, cmd.Args = bash, []string{bash, "-c", `PATH=$1:$PATH; redlock lock --beat 1m job; redlock ` + verb + ` job`, "bash", binaries}
		if output, err := combined(cmd); err != nil || string(output) != want {
			t.Errorf("redlock %s: %v: %s", verb, err, output)
		}
	}
}
