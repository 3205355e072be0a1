package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

func isStopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") T ")
}

// awaitStopped sends a process SIGSTOP, and waits until it has stopped.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	syscall.Kill(pid, syscall.SIGSTOP)
	await(t, "a stopped process", func() bool { return isStopped(pid) })
}

// await waits until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); {
		if time.Now().After(end) {
			t.Fatalf("there never was %s", what)
		}
	}
}

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
	f := startFake(t, answers{ipc.VerbLock: grants(2 * patience)})
	p := start(t, roleRedlock, f.socket, runOf(nil, puppet("terminated")...)...)
	awaitStopped(t, p.up())
	f.say("LOST lock=job lease=secret reason=quorum")
	p.terminated()
	p.ends(exitLost)
}

// Where a shell looks on, redlock run stops together with the command, but not for a
// SIGSTOP: that is for the command alone, whose lock is looked after meanwhile. The
// signals show that redlock run goes on, and that it has seen the command stop.
func TestStoppedCommandAlone(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	tt, cmd, pid := stoppedPuppet(t, f)
	passOn(t, f, pid, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM)
	syscall.Kill(pid, syscall.SIGCONT)
	for line := tt.line(); line != "got terminated"; line = tt.line() {
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
	f := startFake(t, holding())
	tt, cmd, pid := stoppedPuppet(t, f)
	passedOn := []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
	passOn(t, f, pid, passedOn...)
	syscall.Kill(pid, syscall.SIGCONT)
	for range len(passedOn) + 1 { // and that it goes on
		tt.line()
	}
	for range 20 {
		syscall.Kill(f.peer(), syscall.SIGUSR1)
		tt.expect("got user defined signal 1")
	}
	tt.typed("\x1a")
	tt.expect("got stopped")
	syscall.Kill(f.peer(), syscall.SIGUSR1)
	tt.expect("got user defined signal 1")
	syscall.Kill(f.peer(), syscall.SIGTERM)
	tt.expect("got terminated")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// stoppedPuppet is redlock run on a terminal, with a command that has stopped.
func stoppedPuppet(t *testing.T, f *fake) (tt *terminal, cmd *exec.Cmd, pid int) {
	t.Helper()
	tt, cmd = onTerminal(t, roleShell, f.socket, append([]string{testBinary}, runOf(nil, puppet("terminated")...)...)...)
	pid, err := strconv.Atoi(strings.TrimPrefix(tt.line(), "up "))
	if err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, pid)
	return tt, cmd, pid
}

// passOn has redlock run pass signals on to its command, which has stopped.
func passOn(t *testing.T, f *fake, pid int, signals ...syscall.Signal) {
	t.Helper()
	for _, sig := range signals {
		syscall.Kill(f.peer(), sig)
		await(t, "a signal that was passed on", func() bool { return hasPending(pid, sig) })
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
	f := startFake(t, holding())
	args := append([]string{"-e", inGroup, testBinary}, runOf(nil, "sh", "-c", "echo up $$; kill -TSTP $$; exit 3")...)
	p := startCommand(t, detached(command(t, perl, args...)), roleRedlock, f.socket)
	pid := p.up()
	await(t, "a stopped command", func() bool { return isStopped(pid) })
	syscall.Kill(pid, syscall.SIGCONT)
	p.ends(3)
}
