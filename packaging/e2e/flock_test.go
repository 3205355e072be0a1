//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// The tables in MOVING.md that compare flock(1) and redlock run are true: with the same command
// lines, both exit with the stated codes and print in the stated order.
func TestFlock(t *testing.T) {
	t.Parallel() // mostly waits
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("flock is needed: apt-get install util-linux")
	}
	h, _, _ := dev(t)
	for _, row := range tableUnder(t, "MOVING.md", "| command line | exit code | prints |") {
		for _, program := range []string{"flock", "redlock run"} {
			runRow(t, h, program, row[0], row[1], row[2])
		}
	}
	for _, row := range tableUnder(t, "MOVING.md", "| command line | flock | prints | `redlock run` | prints | |") {
		runRow(t, h, "flock", row[0], row[1], row[2])
		runRow(t, h, "redlock run", row[0], row[3], row[4])
	}
}

// The commands of MOVING.md that replace other programs work as it says.
func TestMoving(t *testing.T) {
	t.Parallel()
	h, _, _ := dev(t)
	for _, row := range tableUnder(t, "MOVING.md", "| there | here | exit code | prints | |") {
		runRow(t, h, "", row[1], row[2], row[3])
	}
}

// tableUnder returns the rows of a page's table with this head, as cells.
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
		const pipe = "\x00" // a bar within a cell is written \|
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, pipe), "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], pipe, "|"))
		}
		rows = append(rows, cells)
	}
	if len(rows) < 4 {
		t.Fatalf("%s's table %s has only %d lines", page, head, len(rows))
	}
	return rows[1:] // without the line under the head
}

// runRow runs the command line of a table's row. LOCK is program, unless that is empty.
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
		cmd := exec.Command("sh", "-c", script+"\nexit $?") // without exec, because the shell translates how it ended
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
