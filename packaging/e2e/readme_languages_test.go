//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The programs of the README and of CLIENTS.md that use the packages for Python and Node work.
func TestPageLanguagePrograms(t *testing.T) {
	together(t)
	h, _, _ := dev(t)
	for _, page := range []string{readmeFile, "CLIENTS.md"} {
		t.Run("python "+page, func(t *testing.T) {
			if _, err := os.Stat(debianPython); err != nil {
				t.Skipf("python3 is needed: apt-get install python3: %v", err)
			}
			program := filepath.Join(t.TempDir(), "program.py")
			b := only(t, page, "python", "import redlockd")
			writeFile(t, program, b.text())
			source, err := filepath.Abs("../../client/python")
			if err != nil {
				t.Fatal(err)
			}
			holds(t, exec.Command(debianPython, program), "PYTHONPATH="+source, "REDLOCK_SOCKET="+h.socket)
		})
		t.Run("node "+page, func(t *testing.T) {
			needNode(t)
			program := filepath.Join(nodeProject(t), "program.mjs")
			b := only(t, page, "js", "from 'redlockd'")
			writeFile(t, program, b.text())
			holds(t, exec.Command("node", program), "REDLOCK_SOCKET="+h.socket)
		})
	}
}

func holds(t *testing.T, program *exec.Cmd, env ...string) {
	t.Helper()
	program.Env = append(os.Environ(), env...)
	if output, err := combined(program); err != nil || !strings.HasPrefix(string(output), "holding nightly-backup") {
		t.Errorf("the program ends with %v and prints:\n%s", err, output)
	}
}
