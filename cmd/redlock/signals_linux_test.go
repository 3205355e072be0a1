package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Signals that Linux alone has, and those that nobody thinks of, end the command
// as they would without redlock run.
func TestRareSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{
		35, 64, syscall.SIGPWR, syscall.SIGIO, syscall.SIGSTKFLT, syscall.SIGVTALRM, syscall.SIGXCPU,
		syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGABRT,
	} {
		t.Run(fmt.Sprint(int(sig)), func(t *testing.T) {
			t.Parallel()
			f := startFake(t, holding())
			p := startCommand(t, detached(command(t, testBinary, runOf(nil, "sh", "-c", "ulimit -c 0; echo up $$; exec cat")...)), roleRedlock, f.socket)
			p.up()
			p.signal(sig)
			p.ends(128 + int(sig))
		})
	}
}

// A stderr that nobody reads any more ends nobody, and changes no exit code.
func TestStderrIsGone(t *testing.T) {
	t.Parallel()
	r, w := readEnd(t)
	r.Close()
	defer w.Close()
	f := startFake(t, holding())
	run := runOf([]string{"--verbose"}, "sh", "-c", "exit 6")
	cmd := command(t, "sh", append([]string{"-c", `exec "$@" 2>&3 3>&-`, "sh", testBinary}, run...)...)
	cmd.ExtraFiles = []*os.File{w}
	startCommand(t, cmd, roleRedlock, f.socket).ends(6)
}
