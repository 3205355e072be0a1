package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/doctor"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/top"
)

// The help lists the exit codes that redlock uses.
func TestExitCodesOfHelp(t *testing.T) {
	for code, word := range map[int]string{
		exit.Conflict: "another process held the lock", exit.Usage: "the command line is wrong", exit.Unavailable: "redlockd is not available",
		exit.Internal: "internal error", exit.System: "the system refused memory or files", exit.Lost: "the lock was lost", exit.Denied: "not allowed",
		exit.CannotRun: "the command cannot be run", exit.NotFound: "the command does not exist",
	} {
		if want := fmt.Sprintf("\n%4d  %s", code, word); !strings.Contains(runHelp, want) {
			t.Errorf("help does not say %q", want)
		}
	}
	if exit.Signal != 128 {
		t.Errorf("a signal adds %d, want 128", exit.Signal)
	}
}

// unusual maps each example that does not exit with 0 to its exit code.
var unusual = map[string]int{
	"redlock doctor": 1, // it warns of redlockd -dev
}

// elsewhere lists examples that another test runs.
var elsewhere = []string{
	"redlock force nightly-backup", // it asks the user: TestForceAsks
	"redlock nodes commit",         // it needs a change: packaging/e2e
}

// Every example of --help works when it is pasted.
func TestExamples(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	awaitNodes(t, socket)
	n := 0
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			if slices.Contains(elsewhere, line) {
				continue
			}
			n++
			t.Run(line, func(t *testing.T) { pasteExample(t, newDesk(t), socket, line) })
		}
	}
	if n < 20 {
		t.Errorf("only %d examples were found", n)
	}
}

// awaitNodes waits until all nodes of a daemon are ready. Until then, a command that does not wait
// fails.
func awaitNodes(t *testing.T, socket string) {
	t.Helper()
	awaitStatus(t, socket, "all of its nodes ready", func(status *client.Status) bool {
		return status.Quorum+status.Spare == len(status.Nodes)
	})
}

// awaitStatus waits until isSo accepts the daemon's STATUS.
func awaitStatus(t *testing.T, socket, what string, isSo func(*client.Status) bool) {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cmdtest.Await(t, "a daemon with "+what, func() bool {
		status, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return isSo(status)
	})
}

// desk is the directory in which a test pastes examples. It has the files that they name.
type desk struct{ home, bin string }

func newDesk(t *testing.T) *desk {
	t.Helper()
	home := t.TempDir()
	d := &desk{home, filepath.Join(home, "bin")}
	for _, folder := range []string{"bin", "etc/bash_completion.d", ".config/fish/completions"} {
		if err := os.MkdirAll(filepath.Join(home, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.file(t, "data.csv", "")
	for _, program := range []string{"backup", "report", "git", "make", "python3"} {
		d.file(t, "bin/"+program, "#!/bin/sh\n")
	}
	d.file(t, "bin/redlock", "#!/bin/sh\n"+cmdtest.RoleVariable+"="+cmdtest.RoleRedlock+" exec "+cmdtest.TestBinary+` "$@"`+"\n")
	return d
}

// ownProgram matches a program that the user has written.
var ownProgram = regexp.MustCompile(`\./[\w-]+\.sh`)

func (d *desk) file(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.home, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// pasteExample runs a line in a shell. If the line does not end by itself, pasteExample stops it
// once it has printed something.
func pasteExample(t *testing.T, d *desk, socket, line string) {
	if _, err := exec.LookPath("jq"); err != nil && strings.Contains(line, "jq ") {
		t.Skip("jq is not installed")
	}
	for _, program := range ownProgram.FindAllString(line, -1) {
		d.file(t, program, "#!/bin/sh\n")
	}
	// Every file that the line needs or writes is in the home.
	script := strings.NewReplacer("/usr/local/bin/", "", "/etc/", "etc/").Replace(line)
	cmd := cmdtest.Command(t, "bash", "-c", "set -o pipefail; fpath=(x .); "+script)
	cmd.Dir = d.home
	cmd.Env = append(os.Environ(), "PATH="+d.bin+":"+os.Getenv("PATH"), "HOME="+d.home, cmdtest.SocketVariable+"="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shown := bufio.NewReader(stdout)
	if endless(line) {
		if _, err := shown.ReadString('\n'); err != nil {
			t.Errorf("it shows nothing: %v", err)
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	}
	if _, err := io.Copy(io.Discard, shown); err != nil {
		t.Error(err)
	}
	compareEnd(t, line, cmd.Wait(), stderr.String())
}

// endless reports whether line runs until it is stopped.
func endless(line string) bool {
	return strings.HasPrefix(line, "redlock watch ") || line == "redlock top"
}

func compareEnd(t *testing.T, line string, err error, stderr string) {
	t.Helper()
	code := 0
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	}
	want := 0
	for beginning, usual := range unusual {
		if strings.HasPrefix(line, beginning) {
			want = usual
		}
	}
	if endless(line) {
		want = -1 // the signal's
	}
	if code != want {
		t.Errorf("%s\nexit code %d (%v), want %d; stderr %q", line, code, err, want, stderr)
	}
}

// --help documents every field of the JSON output under its exact name.
func TestJSONIsDocumented(t *testing.T) {
	commands := map[string]*cobra.Command{}
	for _, cmd := range newRoot().Commands() {
		commands[cmd.Name()] = cmd
	}
	for name, values := range map[string][]any{
		"who":    {whoJSON{}, describe.HolderJSON{}},
		"list":   {describe.LockJSON{}},
		"status": {describe.StatusJSON{}, describe.NodeJSON{}},
		"watch":  {watchJSON{}},
		"top":    {top.FrameJSON{}, top.ErrorJSON{}},
		"force":  {forcedJSON{}, forcedHolderJSON{}},
		"admit":  {admittedJSON{}},
		"doctor": {doctor.JSON{}, doctor.FindingJSON{}},
	} {
		for _, value := range values {
			fields := reflect.TypeOf(value)
			for i := range fields.NumField() {
				if key, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ","); !strings.Contains(commands[name].Long, `"`+key+`"`) {
					t.Errorf("redlock %s --help does not speak of %q", name, key)
				}
			}
		}
		if commands[name].Flags().Lookup("json") == nil {
			t.Errorf("redlock %s has no --json", name)
		}
	}
}

// -h shows the descriptions of all flags in one column.
func TestHelpAlignsFlags(t *testing.T) {
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		var out strings.Builder
		cmd.SetOut(&out)
		shortHelp(cmd, nil)
		_, flags, _ := strings.Cut(out.String(), "\nFlags:\n")
		column := 0
		for line := range strings.Lines(flags) {
			if !strings.HasPrefix(strings.TrimLeft(line, " "), "-") {
				continue
			}
			head := flagAndGap.FindString(line)
			if at := len([]rune(head)); column == 0 {
				column = at
			} else if at != column {
				t.Errorf("%s -h: %q begins in column %d, want %d", cmd.Name(), line, at, column)
			}
		}
	}
}

// flagAndGap matches a line of help up to the description of the flag.
var flagAndGap = regexp.MustCompile(`^ +-[^ ].*?  +`)
