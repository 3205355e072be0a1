//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// The tables of flock(1) and redlock run, in FLOCK.md, are true: with the same command
// lines both end with the exit codes that it says, and print in the order that it
// says.
func TestFlock(t *testing.T) {
	t.Parallel() // it mostly waits
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("flock is needed: apt-get install util-linux")
	}
	h, _, _ := dev(t)
	for _, row := range tableUnder(t, "FLOCK.md", "| command line | exit code | prints |") {
		for _, program := range []string{"flock", "redlock run"} {
			runRow(t, h, program, row[0], row[1], row[2])
		}
	}
	for _, row := range tableUnder(t, "FLOCK.md", "| command line | flock | prints | `redlock run` | prints | |") {
		runRow(t, h, "flock", row[0], row[1], row[2])
		runRow(t, h, "redlock run", row[0], row[3], row[4])
	}
}

// The commands of MOVING.md that take the place of other programs' do what it says.
func TestMoving(t *testing.T) {
	t.Parallel()
	h, _, _ := dev(t)
	for _, row := range tableUnder(t, "MOVING.md", "| there | here | exit code | prints | |") {
		runRow(t, h, "", row[1], row[2], row[3])
	}
}

// tableUnder is a page's table with this head: the cells of each row below it.
func tableUnder(t *testing.T, page, head string) (rows [][]string) {
	t.Helper()
	_, after, found := strings.Cut(readFile(t, pagePath(page)), "\n\n"+head+"\n")
	if !found {
		t.Fatalf("%s has no table with the head %s", page, head)
	}
	for line := range strings.Lines(after) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		const pipe = "\x00" // a bar of a command line is \| in a table
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, pipe), "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], pipe, "|"))
		}
		rows = append(rows, cells)
	}
	if len(rows) < 4 {
		t.Fatalf("%s's table %s has only %d lines", page, head, len(rows))
	}
	return rows[1:] // below the line under the head
}

// runRow runs a line of a table, with LOCK being a program, unless that is "".
func runRow(t *testing.T, h *host, program, line, code, prints string) {
	t.Helper()
	script := strings.Trim(line, "`")
	if program != "" {
		script = strings.ReplaceAll(script, "LOCK", program)
	}
	t.Run(script, func(t *testing.T) {
		want, err := strconv.Atoi(code)
		if err != nil {
			t.Fatalf("the page says exit code %q", code)
		}
		cmd := exec.Command("sh", "-c", script+"\nexit $?") // not exec: the shell says how it ended
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "PATH="+binaries+":"+os.Getenv("PATH"), "REDLOCK_SOCKET="+h.socket)
		p := startCommand(t, cmd)
		stdout, stderr := p.rest()
		if got := p.wait(); got != want {
			t.Errorf("exit code %d, want %d; stderr:\n%s", got, want, stderr)
		}
		if got := strings.Join(strings.Fields(stdout), " "); got != prints {
			t.Errorf("it prints %q, want %q; stderr:\n%s", got, prints, stderr)
		}
	})
}
