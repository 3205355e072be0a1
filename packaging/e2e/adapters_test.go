//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// adapters are the examples for interfaces of frameworks, and the tests that run them.
var adapters = map[string]string{
	"sidekiq.rb":         "TestRubyPackage",
	"celery_task.py":     "TestPythonAdapters",
	"apscheduler_job.py": "TestPythonAdapters",
	"django_command.py":  "TestPythonAdapters",
}

// Each adapter has a test, 40 lines at most, and a link on the page that introduces it.
func TestAdaptersAreSmallAndRun(t *testing.T) {
	files, err := os.ReadDir(adapterDir)
	if err != nil {
		t.Fatal(err)
	}
	page := readFile(t, pagePath("CLIENTS.md"))
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, test := range tests {
		all.WriteString(readFile(t, test))
	}
	for _, file := range files {
		test := adapters[file.Name()]
		if test == "" || !strings.Contains(all.String(), "func "+test+"(") {
			t.Errorf("%s is run by no test", file.Name())
		}
		if lines := strings.Count(readFile(t, filepath.Join(adapterDir, file.Name())), "\n"); lines > 40 {
			t.Errorf("%s has %d lines, want 40 at most", file.Name(), lines)
		}
		if !strings.Contains(page, "(../examples/adapters/"+file.Name()+")") {
			t.Errorf("CLIENTS.md has no link to %s", file.Name())
		}
	}
	if len(files) != len(adapters) {
		t.Errorf("got %d adapters, want %d", len(files), len(adapters))
	}
}

// The adapters for frameworks of Python, with stand-ins for the frameworks.
func TestPythonAdapters(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(debianPython); err != nil {
		t.Skipf("python3 is needed: apt-get install python3: %v", err)
	}
	h, _, _ := dev(t)
	tests := exec.Command(debianPython, "-W", "error", "testdata/adapters.py", adapterDir)
	tests.Env = append(os.Environ(), pythonPath(t), "REDLOCK_SOCKET="+h.socket, "PYTHONDONTWRITEBYTECODE=1")
	if output, err := combined(tests); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// adapter returns the path of an example.
func adapter(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(adapterDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
