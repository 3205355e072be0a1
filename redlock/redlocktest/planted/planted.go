package planted

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// env is the environment variable that names the mistake of a process.
const env = "REDLOCKD_PLANTED"

// Mistake is a change of the source that a test must find.
type Mistake struct {
	Name  string
	edits []Edit
}

// Edit is a change of one file.
type Edit struct{ file, before, after string }

// New returns a mistake. In the new text of an edit, WRONG stands for the condition that the mistake is
// planted, and plantedPick(WRONG, a, b) for a if it is, and otherwise b. Paths are relative to the package
// that is tested.
func New(name string, edits ...Edit) Mistake { return Mistake{name, edits} }

// Replace replaces a text that occurs once in the file.
func Replace(file, before, after string) Edit { return Edit{file, before, after} }

// Add adds a file.
func Add(file, text string) Edit { return Edit{file: file, after: text} }

// Name returns the mistake that is planted in this process; "": none.
func Name() string { return os.Getenv(env) }

// Check checks that all mistakes can be planted.
func Check(t *testing.T, mistakes []Mistake) {
	t.Helper()
	sources(t, mistakes)
}

// Build builds a test binary of the package in the current directory that has all mistakes.
func Build(t *testing.T, mistakes []Mistake) (binary string) {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	add := func(name, text string) {
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, strconv.Itoa(len(overlay.Replace))+".go")
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = copied
	}
	folders := map[string]bool{}
	for name, text := range sources(t, mistakes) {
		add(name, text)
		if folder := filepath.Dir(name); !folders[folder] {
			folders[folder] = true
			add(filepath.Join(folder, "planted_here.go"), packageClause(text)+helpers)
		}
	}
	encoded, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "wrong.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-trimpath", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// sources returns the sources with all mistakes.
func sources(t *testing.T, mistakes []Mistake) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range mistakes {
		for _, e := range m.edits {
			e.apply(t, m.Name, all)
		}
	}
	return all
}

// helpers is what the mistakes of a package use.
const helpers = `

import "os"

var plantedHere = os.Getenv("` + env + `")

func plantedPick[T any](wrong bool, a, b T) T {
	if wrong {
		return a
	}
	return b
}
`

func (e Edit) apply(t *testing.T, name string, sources map[string]string) {
	t.Helper()
	text := strings.ReplaceAll(e.after, "WRONG", "(plantedHere == "+strconv.Quote(name)+")")
	if e.before == "" {
		if sources[e.file] != "" {
			t.Fatalf("%s: %s is there already", name, e.file)
		}
		sources[e.file] = text
		return
	}
	if sources[e.file] == "" {
		source, err := os.ReadFile(e.file)
		if err != nil {
			t.Fatal(err)
		}
		sources[e.file] = string(source)
	}
	if n := strings.Count(sources[e.file], e.before); n != 1 {
		t.Fatalf("%s: %d places in %s, want one: adapt the mistake to the source", name, n, e.file)
	}
	sources[e.file] = strings.Replace(sources[e.file], e.before, text, 1)
}

// packageClause returns the line that names the package of a source.
func packageClause(source string) string {
	for line := range strings.Lines(source) {
		if strings.HasPrefix(line, "package ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// Command returns a run of a binary in which the mistake is planted.
func Command(t *testing.T, binary, mistake string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), env+"="+mistake)
	return cmd
}
