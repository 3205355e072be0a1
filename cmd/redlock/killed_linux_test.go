package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/redlock/boottime"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// If redlock run is killed, the next holder starts only when the command can no longer do anything.
func TestKilledThenNext(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	c := cmdtest.Dial(t, socket)
	for range effort.Rounds(5, 100) {
		first, pid := cmdtest.RunPuppet(t, socket)
		next := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, "cat", commandLine(pid))...)
		cmdtest.WaitFor(t, c, "a waiter in LIST", func(entries []client.Entry) bool { return len(entries) == 2 })
		first.Signal(syscall.SIGKILL)
		if line := next.ReadAll(); line != "" { // the file of a process that is about to be reaped is empty
			t.Errorf("the first command lived when the next one started: %q", line)
		}
		next.Wait() // 1 if cat finds no such process
		first.ExpectExit(-int(syscall.SIGKILL))
	}
}

// commandLine returns the path of a file that is empty once the process pid has left user space for
// good. The file is gone once the process is reaped.
func commandLine(pid int) string { return fmt.Sprintf("/proc/%d/cmdline", pid) }

// If redlock run is killed, a script without a #! line ends too. A shell runs it.
func TestKilledWithItsScript(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "tool")
	cmdtest.WriteScript(t, tool, "echo up $$; exec cat", 0o755)
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, tool)...)
	p.AwaitPuppet()
	p.Signal(syscall.SIGKILL)
	p.ReadAll() // it ends with the script
	p.ExpectExit(-int(syscall.SIGKILL))
}

// The command's children are not killed with the command, but they keep the lock.
func TestKilledKeepsTheLockForOrphans(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	c := cmdtest.Dial(t, socket)
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, cmdtest.Puppet("user defined signal 2")...)
	first := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, command...)...)
	orphan := first.AwaitPuppet()
	first.Signal(syscall.SIGKILL)
	first.ExpectExit(-int(syscall.SIGKILL))
	shortest := time.Hour
	cmdtest.WaitFor(t, c, "an extension by the daemon alone", func(entries []client.Entry) bool {
		if len(entries) != 1 || entries[0].Lost {
			t.Fatalf("LIST has %+v, want the lease", entries)
		}
		before := shortest
		shortest = min(before, entries[0].TTL)
		return entries[0].TTL > before
	})
	code, stdout, stderr := cmdtest.Run(t, socket, cmdtest.RunArgs([]string{"-n"}, "echo", "must not run")...)
	cmdtest.CheckExit(t, code, exit.Conflict, stderr, "")
	if stdout != "" {
		t.Errorf("the next command printed %q", stdout)
	}
	cmdtest.WaitFor(t, c, "a lease in LIST", func(entries []client.Entry) bool { return len(entries) == 1 && !entries[0].Waits })
	next := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, "cat", commandLine(orphan))...)
	if err := syscall.Kill(orphan, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if line := next.ReadAll(); line != "" {
		t.Errorf("the orphan lived when the next one started: %q", line)
	}
	next.Wait()
}

// redlock run releases the lock at its end, even if a child has inherited the connection.
func TestInheritedConnectionEnds(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, append([]string{"sh", "-c", `"$@" & exit 0`, "sh"}, cmdtest.Puppet("user defined signal 2")...)...)...)
	heir := p.AwaitPuppet()
	p.ExpectExit(0)
	code, _, stderr := cmdtest.Run(t, socket, cmdtest.RunArgs([]string{"-n"}, "true")...)
	cmdtest.CheckExit(t, code, 0, stderr, "")
	awaitStatus(t, socket, "no connection but this one", func(status *client.Status) bool { return status.Counts["connections"] == 1 })
	syscall.Kill(heir, syscall.SIGUSR2)
	p.ReadAll()
}

// While the daemon hangs, it extends no locks. Each command and its children are killed within the last
// twentieth of the lease time. A busy machine may delay a kill for longer, but not each time.
func TestHungDaemonWhileRunning(t *testing.T) {
	t.Parallel()
	for i := range effort.Rounds(1, 10) {
		late := ""
		for try := range 3 {
			t.Run(fmt.Sprint(i, ".", try), func(t *testing.T) { late = hungDaemon(t) }) // a subtest, so that each try stops its daemon
			if late == "" {
				break
			}
			t.Log("killed late: ", late)
		}
		if late != "" {
			t.Error("killed late each time: ", late)
		}
	}
}

// killedInTime matches what redlock run says of a kill in the last twentieth of 16 s.
var killedInTime = regexp.MustCompile(`got SIGKILL (800|[1-7]?\d?\d)ms before the deadline`)

// hungDaemon returns what a command says that was killed later than promised, or an empty text. If none was, the locks
// are free when the daemon continues.
func hungDaemon(t *testing.T) (late string) {
	const ttl, atATime = 16 * time.Second, 5
	d, socket := cmdtest.StartDaemon(t)
	var commands []*cmdtest.Process
	for i := range atATime {
		command := append([]string{"sh", "-c", `trap "" TERM; "$@" & wait; wait; wait; wait`, "sh"}, cmdtest.Puppet()...)
		p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, append([]string{"run", "-t", ttl.String(), "--grace", "4s", fmt.Sprint("job", i), "--"}, command...)...)
		p.AwaitPuppet()
		commands = append(commands, p)
	}
	d.Stop()
	end := boottime.Exact() + ttl // all leases began earlier
	for _, p := range commands {
		p.ReadAll() // until the last process has ended
		over := boottime.Exact()
		p.ExpectExit(exit.Lost)
		if stderr := p.Stderr(); !strings.Contains(stderr, "got SIGKILL") {
			t.Errorf("stderr is %q, want a SIGKILL", stderr)
		} else if !killedInTime.MatchString(stderr) || over >= end {
			late = fmt.Sprintf("%q, all over %v before the deadline", stderr, end-over)
		}
	}
	d.Signal(syscall.SIGCONT)
	code, _, stderr := cmdtest.Run(t, socket, "run", "-w", "20", "job0", "true")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	return late
}
