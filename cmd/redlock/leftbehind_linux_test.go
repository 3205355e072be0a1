package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// withHeir is a command that a signal ends, and whose child outlives it.
const withHeir = `(trap "echo heir ends; exit" TERM; echo up $$; while :; do read order </dev/null; sleep 0.01; done) & wait`

// If a signal ends the command, redlock run ends its children, so that they do not run
// while the next holder does.
func TestLeftBehindIsTerminated(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", withHeir)...)
	p.AwaitPuppet()
	p.Signal(syscall.SIGUSR1)
	p.ExpectLine("heir ends")
	p.ExpectExit(128 + int(syscall.SIGUSR1))
	f.ExpectRequest(ipc.VerbLock)
	f.ExpectRequest(ipc.VerbUnlock)
}

// A stopped child cannot handle SIGTERM, so redlock run continues it.
func TestLeftBehindAndStopped(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, cmdtest.Puppet("terminated")...)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
	heir := p.AwaitPuppet()
	cmdtest.AwaitStopped(t, heir)
	p.Signal(syscall.SIGUSR1)
	p.ExpectTerminated()
	p.ExpectExit(128 + int(syscall.SIGUSR1))
}

// While a child does not end, redlock run keeps the lock and says so.
func TestLeftBehindKeepsTheLock(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, cmdtest.Puppet("hangup")...)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
	p.AwaitPuppet()
	p.Signal(syscall.SIGALRM)
	p.ExpectTerminated()
	p.AwaitStderr("kept until the processes")
	p.Signal(syscall.SIGUSR2)                         // redlock run checks again, and then prints its message
	for p.ReadLine() != "got user defined signal 2" { // after the line about SIGCONT
	}
	f.ExpectRequest(ipc.VerbLock)
	if len(f.Requests) > 0 {
		t.Errorf("while an heir ran the daemon read %v", (<-f.Requests).Verb)
	}
	p.Signal(syscall.SIGHUP)
	p.ReadAll()
	p.ExpectExit(128 + int(syscall.SIGALRM))
	f.ExpectRequest(ipc.VerbUnlock)
	if n := strings.Count(p.Stderr(), "kept until the processes"); n != 1 {
		t.Errorf("it is printed %d times, want once: %q", n, p.Stderr())
	}
}

// If the lock is lost, redlock run kills each child that does not stop, however the command ended.
func TestLeftBehindIsKilled(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"by a signal": `"$@" & wait`, "by itself": `trap "exit 3" TERM; "$@" & wait`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(4 * time.Second)})
			p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, append([]string{"sh", "-c", script, "sh"}, cmdtest.Puppet()...)...)...)
			p.AwaitPuppet()
			f.Broadcast("LOST lock=job lease=secret reason=quorum")
			if out := p.ReadAll(); !strings.Contains(out, "got terminated") {
				t.Errorf("the child printed %q, want got terminated", out)
			}
			p.ExpectExit(exit.Lost)
		})
	}
}

// redlock run also terminates the processes that a child has started.
func TestLeftBehindOfHeirs(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	command := append([]string{"sh", "-c", `sh -c '"$@" & wait' sh "$@" & wait`, "sh"}, cmdtest.Puppet("terminated")...)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
	p.AwaitPuppet()
	p.Signal(syscall.SIGUSR1)
	p.ExpectTerminated()
	p.ExpectExit(128 + int(syscall.SIGUSR1))
}

// restless is a process that, on SIGTERM, goes on in one child after the other, so a process that
// was found has ended before the signal is sent. It does so until after the first SIGKILL.
const restless = `$| = 1; $SIG{TERM} = sub { $end ||= time + 2 }; print "up $$\n"; select undef, undef, undef, 1 until $end;
while (time < $end) { exit if fork; select undef, undef, undef, $ENV{PACE} } sleep 10; print "not killed\n"`

// If a process escapes one SIGKILL, it does not escape the next: no process is left when redlock
// run ends. Processes that fork without a pause take the processor from other tests, so only
// REDLOCKD_LONG=1 uses them.
func TestLeftBehindAndRestless(t *testing.T) {
	t.Parallel()
	needPerl(t)
	pace := "0.01"
	if effort.IsLong() {
		pace = "0"
	}
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(2 * time.Second)})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "env", "PACE="+pace, "sh", "-c", `for i in 1 2 3 4; do perl -e "$0" & done; wait`, restless)...)
	for range 4 {
		p.AwaitPuppet()
	}
	p.ExpectExit(exit.Lost)
	p.Stdout.SetReadDeadline(time.Now().Add(3 * time.Second))
	if out := p.ReadAll(); out != "" {
		t.Errorf("the output is %q", out)
	}
}

// deadChild is a process whose child has ended and is not reaped. The child is in the session that
// deadChild has left.
const deadChild = `pipe R, W; if (!fork) { exit } close W; require POSIX; POSIX::setsid(); <R>; $| = 1; print "up $$\n"; sleep 60`

// redlock run does not wait for a dead process if it does not count the parent as left behind.
func TestLeftBehindAndDead(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", `perl -e "$0" & wait`, deadChild)...)
	daemon := p.AwaitPuppet()
	p.Signal(syscall.SIGUSR1)
	p.ExpectExit(128 + int(syscall.SIGUSR1))
	syscall.Kill(daemon, syscall.SIGKILL)
}

// If no process reads stderr, redlock run still ends.
func TestLeftBehindWithClosedStderr(t *testing.T) {
	t.Parallel()
	_, full := cmdtest.PipeForTest(t)
	defer full.Close()
	cmdtest.FillPipe(t, full)
	f := cmdtest.StartFake(t, cmdtest.Granting())
	run := cmdtest.RunArgs(nil, "sh", "-c", `(trap "" TERM; echo up $$; sleep 2) & wait`) // until after explainAfter
	cmd := cmdtest.Command(t, "sh", append([]string{"-c", `exec "$@" 2>&3 3>&-`, "sh", cmdtest.TestBinary}, run...)...)
	cmd.ExtraFiles = []*os.File{full}
	p := cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, f.Socket)
	p.AwaitPuppet()
	p.Signal(syscall.SIGUSR1)
	p.ExpectExit(128 + int(syscall.SIGUSR1))
}

// A command that ends by itself may leave a process running. redlock run never ends a process in a
// session of its own.
func TestLeftBehindOnPurpose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, script, order string
		want                int
	}{
		{"after the end", `"$@" & exit 5`, "", 5},
		{"a session of its own", `setsid "$@" & read order; kill -TERM $$`, "\n", 128 + 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Granting())
			command := append([]string{"sh", "-c", test.script, "sh"}, cmdtest.Puppet("user defined signal 2")...)
			p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
			heir := p.AwaitPuppet()
			io.WriteString(p.Stdin, test.order) // an empty order changes nothing
			p.ExpectExit(test.want)
			syscall.Kill(heir, syscall.SIGUSR2)
			if out := p.ReadAll(); out != "got user defined signal 2\n" {
				t.Errorf("the child printed %q, want only the signal that ends it", out)
			}
		})
	}
}

// A process that ran before the command was not started by it, even if it is a child of redlock
// run. The shell that became redlock run can have started it, such as the tee in redlock run job
// CMD > >(tee log), which ends only after redlock run.
func TestEarlierProcessesAreNotLeftBehind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ttl  time.Duration
		want int
	}{
		{"the command is ended by a signal", 2 * cmdtest.Timeout, 128 + int(syscall.SIGUSR1)},
		{"the lock is lost", 2 * time.Second, exit.Lost},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(test.ttl), ipc.VerbUnlock: cmdtest.Reply("OK")})
			words := append([]string{"-c", `"$1" "$2" "$3" "$4" & shift 4; read go; exec "$@"`, "sh"}, cmdtest.Puppet("user defined signal 2")...)
			words = append(words, cmdtest.TestBinary)
			p := cmdtest.StartCommand(t, cmdtest.Command(t, "sh", append(words, cmdtest.RunArgs(nil, "sh", "-c", `echo under; trap "" TERM; while :; do sleep 0.1; done`)...)...), cmdtest.RoleRedlock, f.Socket)
			before := p.AwaitPuppet()
			p.WriteLine("go")
			p.ExpectLine("under")
			if test.want != exit.Lost {
				p.Signal(syscall.SIGUSR1)
			}
			p.ExpectExit(test.want)
			syscall.Kill(before, syscall.SIGUSR2)
			if out := p.ReadAll(); out != "got user defined signal 2\n" {
				t.Errorf("the earlier process printed %q, want only the signal that ends it", out)
			}
		})
	}
}

// If a command has released the lock and a signal then ends it, it may leave any process behind:
// there is no lock to keep.
func TestLeftBehindAfterRelease(t *testing.T) {
	t.Parallel()
	const gone = "ERR NOTHELD : there is no lease with this id here (any more)"
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Second), ipc.VerbCheck: cmdtest.Reply(gone), ipc.VerbUnlock: cmdtest.Reply(gone)})
	command := append([]string{"sh", "-c", `"$@" & sleep 1.5; kill -USR1 $$`, "sh"}, cmdtest.Puppet("user defined signal 2")...)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
	heir := p.AwaitPuppet()
	p.ExpectExit(128 + int(syscall.SIGUSR1)) // not 75: after 1.5 s redlock run knows that the lock was released
	syscall.Kill(heir, syscall.SIGUSR2)
	if out := p.ReadAll(); out != "got user defined signal 2\n" {
		t.Errorf("the child printed %q, want only the signal that ends it", out)
	}
	if said := p.Stderr(); said != "" {
		t.Errorf("stderr is %q, want nothing", said)
	}
}
