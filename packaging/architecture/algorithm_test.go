package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	invariantRow = regexp.MustCompile(`(?m)^\| I\d+ \|[^|]*\|([^|]*)\|`)
	codeName     = regexp.MustCompile("`([^`]+)`")
)

// Each invariant of the algorithm names the functions that keep it. They exist: methods, or functions
// of the scripts.
func TestInvariantsNameFunctions(t *testing.T) {
	code := functionLines(t, "../../redlock", "../../daemon")
	rows := invariantRow.FindAllStringSubmatch(read(t, "../docs/design/ALGORITHM.md"), -1)
	if len(rows) < 20 {
		t.Errorf("%d invariants on the page, want at least 20", len(rows))
	}
	for _, row := range rows {
		names := codeName.FindAllStringSubmatch(row[1], -1)
		if len(names) == 0 {
			t.Errorf("no function keeps the invariant %s", row[0])
		}
		for _, name := range names {
			if !declaration(name[1]).MatchString(code) {
				t.Errorf("%s: neither redlock nor daemon has %s", strings.TrimSpace(row[1]), name[1])
			}
		}
	}
}

// declaration matches the declaration of a name in the table.
func declaration(name string) *regexp.Regexp {
	owner, method, isMethod := strings.Cut(name, ".")
	if isMethod {
		return regexp.MustCompile(`(?m)^func \(\w+ \*?` + owner + `\) ` + method + `\(`)
	}
	return regexp.MustCompile(`(?m)^ *local function ` + name + `\(`)
}

// functionLines returns the lines with functions of the code and the scripts below some directories,
// without tests.
func functionLines(t *testing.T, folders ...string) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if ext := filepath.Ext(path); err == nil && (ext == ".go" || ext == ".lua") && !strings.HasSuffix(path, "_test.go") {
				for line := range strings.Lines(read(t, path)) {
					if strings.Contains(line, "func") {
						all.WriteString(line)
					}
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return all.String()
}
