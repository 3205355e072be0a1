package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// rounds is how often what is random is tried: more with REDLOCKD_LONG=1.
func rounds(short, long int) int {
	if os.Getenv("REDLOCKD_LONG") == "1" {
		return long
	}
	return short
}

// When redlock run is killed, the next holder starts only once the command can
// do nothing any more.
func TestKilledThenNext(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	c := dial(t, socket)
	for range rounds(5, 100) {
		first, pid := runPuppet(t, socket)
		next := start(t, roleRedlock, socket, runOf(nil, "cat", commandLine(pid))...)
		waitFor(t, c, "a waiter in LIST", func(entries []client.Entry) bool { return len(entries) == 2 })
		first.signal(syscall.SIGKILL)
		if line := next.rest(); line != "" { // a process that is about to be reaped has none
			t.Errorf("the first command lived when the next one started: %q", line)
		}
		next.wait() // 1 where cat finds no such process
		first.ends(-int(syscall.SIGKILL))
	}
}

// commandLine is a file that is empty once the process pid has left user space
// for good, and not there at all once it is reaped.
func commandLine(pid int) string { return fmt.Sprintf("/proc/%d/cmdline", pid) }

// So it is with a script without a #! line, which the shell runs.
func TestKilledWithItsScript(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "tool")
	script(t, tool, "echo up $$; exec cat", 0o755)
	f := startFake(t, holding())
	p := start(t, roleRedlock, f.socket, runOf(nil, tool)...)
	p.up()
	p.signal(syscall.SIGKILL)
	p.rest() // it ends with the script
	p.ends(-int(syscall.SIGKILL))
}

// What the command has started is not killed with it, but holds the lock.
func TestKilledKeepsTheLockForOrphans(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	c := dial(t, socket)
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, puppet("user defined signal 2")...)
	first := start(t, roleRedlock, socket, runOf([]string{"-t", "1s"}, command...)...)
	orphan := first.up()
	first.signal(syscall.SIGKILL)
	first.ends(-int(syscall.SIGKILL))
	// Three lease times: it is extended, by nobody but the daemon.
	code, stdout, stderr := redlock(t, socket, runOf([]string{"-w", "3"}, "echo", "must not run")...)
	check(t, code, exitConflict, stderr, "HELD")
	if stdout != "" {
		t.Errorf("the next command printed %q", stdout)
	}
	waitFor(t, c, "a lease in LIST", func(entries []client.Entry) bool { return len(entries) == 1 && !entries[0].Waits })
	next := start(t, roleRedlock, socket, runOf(nil, "cat", commandLine(orphan))...)
	if err := syscall.Kill(orphan, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if line := next.rest(); line != "" {
		t.Errorf("the orphan lived when the next one started: %q", line)
	}
	next.wait()
}

// The lock is given back at the end, whoever has inherited the connection.
func TestInheritedConnectionEnds(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	p := start(t, roleRedlock, socket, runOf(nil, append([]string{"sh", "-c", `"$@" & exit 0`, "sh"}, puppet("user defined signal 2")...)...)...)
	heir := p.up()
	p.ends(0)
	code, _, stderr := redlock(t, socket, runOf([]string{"-n"}, "true")...)
	check(t, code, 0, stderr, "")
	awaitStatus(t, socket, "no connection but this one", func(status *client.Status) bool { return status.Counts["connections"] == 1 })
	syscall.Kill(heir, syscall.SIGUSR2)
	p.rest()
}

// With the daemon stopped nobody extends the locks. Seen from outside: they began
// before the stop, so their deadlines are at most a ttl later.
func TestHungDaemonLoops(t *testing.T) {
	t.Parallel()
	for i := range rounds(1, 10) {
		t.Run(fmt.Sprint(i), hungDaemon) // it gives back the daemon's place
	}
}

func hungDaemon(t *testing.T) {
	const ttl, atATime = 10 * time.Second, 5
	d, socket := startDaemon(t)
	var commands []*process
	for i := range atATime {
		command := append([]string{"sh", "-c", `trap "" TERM; "$@" & wait; wait; wait; wait`, "sh"}, puppet()...)
		p := start(t, roleRedlock, socket, append([]string{"run", "-t", ttl.String(), fmt.Sprint("job", i), "--"}, command...)...)
		p.up()
		commands = append(commands, p)
	}
	d.stop()
	end := boottime.Exact() + ttl
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, p := range commands {
		wg.Go(func() { p.endsBefore(end) })
	}
}

// endsBefore waits for the last of a command's processes, and sees that it was
// killed before the deadline of its lock.
func (p *process) endsBefore(end time.Duration) {
	out, err := io.ReadAll(p.lines)
	left := end - boottime.Exact()
	p.t.Logf("measured: all over %v before the deadline", left)
	if err != nil || left <= 0 {
		p.t.Errorf("all over %v after the deadline: %v; stdout %q", -left, err, out)
	}
	err = p.cmd.Wait()
	if p.cmd.ProcessState.ExitCode() != exitLost || !strings.Contains(p.said(), "got SIGKILL") {
		p.t.Errorf("it ended with %v, stderr %q, want exit code 75 and a SIGKILL", err, p.said())
	}
}
