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

// hasPending reports whether sig is pending for a stopped process.
func hasPending(pid int, sig syscall.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, mask, _ := strings.Cut(string(status), "ShdPnd:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	pending, _ := strconv.ParseUint(mask, 16, 64)
	return pending&(1<<(sig-1)) != 0
}

// If the lock is lost, a stopped command gets SIGTERM and SIGCONT. Otherwise it would be killed
// without a chance to end by itself.
func TestStoppedCommandGetsSIGTERM(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(2 * cmdtest.Timeout)})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, cmdtest.Puppet("terminated")...)...)
	cmdtest.AwaitStopped(t, p.AwaitPuppet())
	f.Broadcast("LOST lock=job lease=secret reason=quorum")
	p.ExpectTerminated()
	p.ExpectExit(exit.Lost)
}

// Under a shell with job control, redlock run stops together with the command, except after a
// SIGSTOP. A SIGSTOP is for the command alone, and redlock run watches the lock meanwhile. The
// forwarded signals show that redlock run goes on, and that it has seen the command stop.
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

// A command that continues after a SIGSTOP is treated as before. On Ctrl-Z, redlock run does not
// stop before the command does. The forwarded signals show that redlock run has seen both.
func TestStoppedCommandGoesOn(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	tt, cmd, pid := stoppedPuppet(t, f)
	passedOn := []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
	passOn(t, f, pid, passedOn...)
	syscall.Kill(pid, syscall.SIGCONT)
	for range len(passedOn) + 1 { // plus one that shows that it goes on
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

// stoppedPuppet starts redlock run on a terminal, with a command that has stopped.
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

// passOn sends signals to redlock run and waits until it has forwarded them to its stopped command.
func passOn(t *testing.T, f *cmdtest.Fake, pid int, signals ...syscall.Signal) {
	t.Helper()
	for _, sig := range signals {
		syscall.Kill(f.Peer(), sig)
		cmdtest.Await(t, "a signal that was passed on", func() bool { return hasPending(pid, sig) })
	}
}

// inGroup runs its arguments in a new process group whose parent is outside of it. Otherwise the
// kernel would not stop the group on a signal of a terminal.
const inGroup = `$pid = fork // die; if (!$pid) { setpgrp; exec @ARGV or die } waitpid($pid, 0); exit $? >> 8`

// Without a shell, nothing would continue redlock run, so it does not stop with the command.
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
