package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// character is a character in a script that one cannot see, such as \u00a0.
var character = regexp.MustCompile(`\\u[0-9a-f]{4}`)

// splitWords splits a line as the protocol does: other white space than U+0020 belongs to a word.
func splitWords(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ' ' })
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
		line = character.ReplaceAllStringFunc(line, func(code string) string {
			n, _ := strconv.ParseUint(code[2:], 16, 16) // the expression allows nothing else
			return string(rune(n))
		})
		verb, rest, _ := strings.Cut(line, " ")
		rest = strings.Trim(rest, " ")
		steps = append(steps, step{
			at: filepath.Base(path) + ":" + itoa(i+1), verb: verb, words: splitWords(rest), rest: rest,
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
