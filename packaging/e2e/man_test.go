//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// manuals returns the paths of all manual pages, by name.
func manuals(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join(binaries, "manuals")
	if err := writeManuals(dir); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range []string{"redlock.1", "redlockd.8", "redlockd.hcl.5", "redlockd-protocol.7"} {
		all[name] = filepath.Join(dir, name)
	}
	return all
}

var manualsWritten struct {
	once sync.Once
	err  error
}

// writeManuals writes the pages once.
func writeManuals(dir string) error {
	w := &manualsWritten
	w.once.Do(func() {
		if w.err = os.Mkdir(dir, 0o755); w.err != nil {
			return
		}
		command := goCommand("run", "./packaging/man", "1.0.0", "2026-01-01", dir)
		command.Dir = filepath.Join("..", "..")
		if output, err := combined(command); err != nil {
			w.err = fmt.Errorf("packaging/man: %w\n%s", err, output)
			return
		}
		page, err := printed(exec.Command(filepath.Join(binaries, "redlock"), "man"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "redlock.1"), page, 0o644)
		}
		w.err = err
	})
	return w.err
}

// man reports no warnings about a page, and shows its text.
func TestManuals(t *testing.T) {
	t.Parallel()
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed (Debian: apt-get install man-db)")
	}
	for name, path := range manuals(t) {
		shown, warnings := render(t, man, path)
		if warnings != "" {
			t.Errorf("%s: man --warnings:\n%s", name, warnings)
		}
		if regexp.MustCompile(`@[A-Z]+@`).MatchString(shown) {
			t.Errorf("%s: something was not filled in:\n%s", name, shown)
		}
		for _, want := range []string{"NAME", "DESCRIPTION", "SEE ALSO", "1.0.0"} {
			if !strings.Contains(shown, want) && (want != "1.0.0" || name != "redlock.1") {
				t.Errorf("%s lacks %s:\n%s", name, want, shown)
			}
		}
	}
}

// render returns a page as plain text. The status of man is meaningless.
func render(t *testing.T, man, path string) (shown, warnings string) {
	t.Helper()
	var out, err bytes.Buffer
	command := exec.Command(man, "--warnings", "--encoding=UTF-8", "--local-file", path)
	command.Env = append(command.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100", "MAN_KEEP_FORMATTING=", "MANROFFOPT=-c")
	if err := finish(command, &out, &err, time.After(commandBound)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return regexp.MustCompile(".\b").ReplaceAllString(out.String(), ""), err.String()
}

// The pages contain every flag, exit code, word of the config, verb and code.
func TestManualsAreComplete(t *testing.T) {
	pages := manuals(t)
	page := func(name string) string {
		return strings.NewReplacer(`\-`, "-", `\&`, "").Replace(readFile(t, pages[name]))
	}
	lacks := func(name, word string) {
		t.Helper()
		if !regexp.MustCompile(`(^|[^\w])` + regexp.QuoteMeta(word) + `($|[^\w])`).MatchString(page(name)) {
			t.Errorf("%s lacks %s", name, word)
		}
	}
	for _, flag := range flagsOf(t, filepath.Join(binaries, "redlockd"), "-help") {
		lacks("redlockd.8", "Fl "+strings.TrimPrefix(flag, "-"))
	}
	for _, flag := range flagsOf(t, filepath.Join(binaries, "redlock"), "run", "--help") {
		lacks("redlock.1", flag)
	}
	for _, found := range regexp.MustCompile(`(?m)^[# ]*(\w+) +(?:=|\{|".*" \{)`).FindAllStringSubmatch(readFile(t, filepath.Join("..", "redlockd.hcl")), -1) {
		lacks("redlockd.hcl.5", found[1])
	}
	for _, found := range regexp.MustCompile(`(?m)^\tCode\w+ +Code = "(\w+)"`).FindAllStringSubmatch(readFile(t, filepath.Join("..", "..", "ipc", "code.go")), -1) {
		lacks("redlockd-protocol.7", found[1])
	}
}

// flagsOf returns the long flags in a program's help.
func flagsOf(t *testing.T, argv ...string) (flags []string) {
	t.Helper()
	output, err := printed(exec.Command(argv[0], argv[1:]...))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--?[a-z-]{2,})`).FindAllStringSubmatch(string(output), -1) {
		flags = append(flags, found[1])
	}
	if len(flags) < 4 {
		t.Fatalf("%q shows only the flags %q", argv, flags)
	}
	return flags
}

// The requests in the protocol's page are those of the daemon's HELP.
func TestManualHasHelp(t *testing.T) {
	t.Parallel()
	h, _, _ := dev(t)
	n, page := h.nc(), strings.NewReplacer(`\&`, "", `\(ba`, "|", `\(aq`, "'", `\(dq`, `"`).Replace(readFile(t, manuals(t)["redlockd-protocol.7"]))
	verbs := n.lines("HELP")
	for _, line := range verbs[:len(verbs)-1] {
		if usage := strings.TrimPrefix(line, "- : "); !strings.Contains(page, "\n.It "+usage+"\n") {
			t.Errorf("the page lacks: %s", usage)
		}
	}
}

// The nc session of redlockd-protocol(7) works as shown. Another client acquires the
// lock before the last line.
func TestManualTranscript(t *testing.T) {
	t.Parallel()
	h, _, _ := dev(t)
	page := readFile(t, filepath.Join("..", "man", "redlockd-protocol.7"))
	begin := strings.Index(page, "$ nc -U ")
	session := strings.ReplaceAll(page[begin:begin+strings.Index(page[begin:], "\n.Ed")], "/run/redlockd/redlockd.sock", h.socket)
	session = strings.ReplaceAll(session, "4fJk2...", "4fJk2")
	lines := strings.Split(session, "\n")
	if len(lines) != 7 || !strings.HasPrefix(lines[6], "ERR HELD ") {
		t.Fatalf("the page shows another session than this test plays: %q", lines)
	}
	typist, other := newDesk(t, h), newDesk(t, h)
	typist.play(block{lines: lines[:5]})
	other.play(block{lines: []string{lines[0], lines[1], lines[2]}})
	typist.play(block{lines: lines[5:]})
}
