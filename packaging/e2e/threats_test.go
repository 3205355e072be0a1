//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that SECURITY.md names for its claims exist.
func TestThreats(t *testing.T) {
	_, shown, _ := strings.Cut(readFile(t, pagePath("SECURITY.md")), "\n## Shown by these tests\n")
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\| (.+) \\|$").FindAllStringSubmatch(shown, -1)
	if len(rows) < 5 {
		t.Fatalf("SECURITY.md names the tests of %d folders only", len(rows))
	}
	for _, row := range rows {
		folder, names := row[1], row[2]
		tests := testsIn(t, filepath.Join("..", "..", folder))
		for _, name := range strings.Fields(names) {
			if !strings.Contains(tests, "\nfunc "+name+"(") {
				t.Errorf("%s has no %s, by which SECURITY.md shows what it claims", folder, name)
			}
		}
	}
}

// testsIn returns the text of all tests in folder.
func testsIn(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", folder, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
