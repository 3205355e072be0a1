package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// step is a line of a script.
type step struct {
	at    string // FILE:LINE
	verb  string
	words []string
	rest  string // the words as written
}

// readScript reads a script. Empty lines, and lines that begin with #, are comments.
func readScript(t *testing.T, path string) []step {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		steps = append(steps, step{
			at: filepath.Base(path) + ":" + itoa(i+1), verb: verb, words: strings.Fields(rest), rest: rest,
		})
	}
	return steps
}

// scripts returns the paths of all scripts.
func scripts(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("scripts/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return paths
}
