package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// hasPending tells whether a signal waits for a process, which has stopped, to go on.
func hasPending(pid int, sig syscall.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, mask, _ := strings.Cut(string(status), "ShdPnd:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	pending, _ := strconv.ParseUint(mask, 16, 64)
	return pending&(1<<(sig-1)) != 0
}

// A command that somebody has stopped is told all the same when the lock is lost: it
// would be killed otherwise, without a chance to stop by itself.
func TestStoppedCommandIsTold(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(2 * cmdtest.Timeout)})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, cmdtest.Puppet("terminated")...)...)
	cmdtest.AwaitStopped(t, p.AwaitPuppet())
	f.Broadcast("LOST lock=job lease=secret reason=quorum")
	p.ExpectTerminated()
	p.ExpectExit(exit.Lost)
}

// Where a shell looks on, redlock run stops together with the command, but not for a
// SIGSTOP: that is for the command alone, whose lock is looked after meanwhile. The
// signals show that redlock run goes on, and that it has seen the command stop.
func TestStoppedCommandAlone(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	tt, cmd, pid := stoppedPuppet(t, f)
	passOn(t, f, pid, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM)
	syscall.Kill(pid, syscall.SIGCONT)
	for line := tt.ReadLine(); line != "got terminated"; line = tt.ReadLine() {
		if !strings.HasPrefix(line, "got ") {
			t.Errorf("the terminal shows %q, want signals", line)
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// A command that was stopped so once, and goes on, is one like others: for Ctrl-Z redlock run
// does not stop before it does. The signals show that redlock run has seen both.
func TestStoppedCommandGoesOn(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	tt, cmd, pid := stoppedPuppet(t, f)
	passedOn := []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
	passOn(t, f, pid, passedOn...)
	syscall.Kill(pid, syscall.SIGCONT)
	for range len(passedOn) + 1 { // and that it goes on
		tt.ReadLine()
	}
	for range 20 {
		syscall.Kill(f.Peer(), syscall.SIGUSR1)
		tt.ExpectLine("got user defined signal 1")
	}
	tt.Type("\x1a")
	tt.ExpectLine("got stopped")
	syscall.Kill(f.Peer(), syscall.SIGUSR1)
	tt.ExpectLine("got user defined signal 1")
	syscall.Kill(f.Peer(), syscall.SIGTERM)
	tt.ExpectLine("got terminated")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// stoppedPuppet is redlock run on a terminal, with a command that has stopped.
func stoppedPuppet(t *testing.T, f *cmdtest.Fake) (tt *cmdtest.Terminal, cmd *exec.Cmd, pid int) {
	t.Helper()
	tt, cmd = cmdtest.OnTerminal(t, roleShell, f.Socket, append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, cmdtest.Puppet("terminated")...)...)...)
	pid, err := strconv.Atoi(strings.TrimPrefix(tt.ReadLine(), "up "))
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.AwaitStopped(t, pid)
	return tt, cmd, pid
}

// passOn has redlock run pass signals on to its command, which has stopped.
func passOn(t *testing.T, f *cmdtest.Fake, pid int, signals ...syscall.Signal) {
	t.Helper()
	for _, sig := range signals {
		syscall.Kill(f.Peer(), sig)
		cmdtest.Await(t, "a signal that was passed on", func() bool { return hasPending(pid, sig) })
	}
}

// inGroup runs its arguments as a process group of its own, whose parent is not in it:
// without that the kernel does not stop those that a terminal's signal is sent to.
const inGroup = `$pid = fork // die; if (!$pid) { setpgrp; exec @ARGV or die } waitpid($pid, 0); exit $? >> 8`

// Where no shell looks on, nobody would let redlock run go on: it does not stop with
// the command.
func TestStoppedWithoutShell(t *testing.T) {
	t.Parallel()
	perl := needPerl(t)
	f := cmdtest.StartFake(t, cmdtest.Granting())
	args := append([]string{"-e", inGroup, cmdtest.TestBinary}, cmdtest.RunArgs(nil, "sh", "-c", "echo up $$; kill -TSTP $$; exit 3")...)
	p := cmdtest.StartCommand(t, cmdtest.Detach(cmdtest.Command(t, perl, args...)), cmdtest.RoleRedlock, f.Socket)
	pid := p.AwaitPuppet()
	cmdtest.Await(t, "a stopped command", func() bool { return cmdtest.IsStopped(pid) })
	syscall.Kill(pid, syscall.SIGCONT)
	p.ExpectExit(3)
}
