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
	t.Parallel()
	h, _, _ := dev(t)
	for _, page := range []string{readmeFile, "CLIENTS.md"} {
		t.Run("python "+page, func(t *testing.T) {
			if _, err := os.Stat(debianPython); err != nil {
				t.Skipf("python3 is needed: apt-get install python3: %v", err)
			}
			program := filepath.Join(t.TempDir(), "program.py")
			b := only(t, page, "python", "lock(\"nightly-backup\", wait=5)")
			writeFile(t, program, b.text())
			holds(t, exec.Command(debianPython, program), pythonPath(t), "REDLOCK_SOCKET="+h.socket)
		})
		t.Run("node "+page, func(t *testing.T) {
			needNode(t)
			program := filepath.Join(nodeProject(t), "program.mjs")
			b := only(t, page, "js", "console.log('holding'")
			writeFile(t, program, b.text())
			holds(t, exec.Command("node", program), "REDLOCK_SOCKET="+h.socket)
		})
	}
	t.Run("ruby", func(t *testing.T) {
		needRuby(t)
		program := filepath.Join(t.TempDir(), "program.rb")
		b := only(t, "CLIENTS.md", "ruby", "client.lock(")
		writeFile(t, program, b.text())
		holds(t, exec.Command("ruby", "-I", filepath.Join(rubyClient, "lib"), program), "REDLOCK_SOCKET="+h.socket)
	})
	t.Run("php", func(t *testing.T) {
		needPHP(t)
		program := filepath.Join(phpProject(t), "program.php")
		b := only(t, "CLIENTS.md", "php", "withLock('nightly-backup'")
		writeFile(t, program, b.text())
		holds(t, exec.Command("php", program), "REDLOCK_SOCKET="+h.socket)
	})
	t.Run("a test with redlockd/testing", func(t *testing.T) {
		needNode(t)
		program := filepath.Join(nodeProject(t), "program.mjs")
		b := only(t, "CLIENTS.md", "js", "redlockd/testing")
		writeFile(t, program, b.text())
		if output, err := combined(exec.Command("node", "--test", program)); err != nil || !strings.Contains(string(output), "pass 1") {
			t.Errorf("the test ends with %v and prints:\n%s", err, output)
		}
	})
}

// The synchronous Python program of CLIENTS.md ends when it loses its lock, in the middle of its work.
func TestPagePythonProgramStopsAtLoss(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(debianPython); err != nil {
		t.Skipf("python3 is needed: apt-get install python3: %v", err)
	}
	h, _, _ := dev(t)
	const holding = `print("holding nightly-backup")`
	block := only(t, "CLIENTS.md", "python", "signal.SIGTERM")
	text := block.text()
	if !strings.Contains(text, holding) {
		t.Fatalf("the program does not contain %s", holding)
	}
	program := filepath.Join(t.TempDir(), "program.py")
	writeFile(t, program, strings.Replace(text, holding, `print("holding nightly-backup", flush=True); import time; time.sleep(600)`, 1))
	p := start(t, h.dir, "env", pythonPath(t), "REDLOCK_SOCKET="+h.socket, debianPython, program)
	p.prints("holding nightly-backup")
	h.nc().expect("FORCE nightly-backup", "OK lock=nightly-backup")
	if code := p.wait(); code != 75 {
		t.Errorf("the program ends with %d, want 75", code)
	}
}

func pythonPath(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("../../client/python")
	if err != nil {
		t.Fatal(err)
	}
	return "PYTHONPATH=" + source
}

func holds(t *testing.T, program *exec.Cmd, env ...string) {
	t.Helper()
	program.Env = append(os.Environ(), env...)
	if output, err := combined(program); err != nil || !strings.HasPrefix(string(output), "holding nightly-backup") {
		t.Errorf("the program ends with %v and prints:\n%s", err, output)
	}
}
