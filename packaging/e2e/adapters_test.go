//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// adapters are the examples for interfaces of frameworks, and the tests that run them.
var adapters = map[string]string{
	"sidekiq.rb": "TestRubyPackage",
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

// adapter returns the path of an example.
func adapter(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(adapterDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
