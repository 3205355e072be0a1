package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// If the daemon restarts while the command runs, it continues the lease. The command notices
// nothing.
func TestRestartWhileRunning(t *testing.T) {
	t.Parallel()
	a := cmdtest.Granting()
	a[ipc.VerbResume] = cmdtest.GrantFor(2 * cmdtest.Timeout)
	f := cmdtest.StartFake(t, a)
	p, _ := cmdtest.RunPuppet(t, f.Socket, "--verbose")
	f.ExpectRequest(ipc.VerbLock)
	for range 2 {
		f.HangUp()
		resumed := f.ExpectRequest(ipc.VerbResume)
		if resumed.Lease != "secret" || len(resumed.Names) != 1 || resumed.Names[0] != "job" || resumed.Owner == "" {
			t.Errorf("RESUME had %+v, want the lease secret of job, and an owner", resumed)
		}
	}
	p.WriteLine("exit 3")
	f.ExpectRequest(ipc.VerbUnlock)
	p.ExpectExit(3)
	for _, want := range []string{"while the command ran, redlock lost its connection to redlockd 2 times, and connected again", "released"} {
		if stderr := p.Stderr(); !strings.Contains(stderr, want) {
			t.Errorf("stderr is %q, want %q in it", stderr, want)
		}
	}
}

// If the restarted daemon does not know the lease, redlock run stops the command at once.
func TestRestartThatLosesTheLock(t *testing.T) {
	t.Parallel()
	a := cmdtest.Granting()
	a[ipc.VerbResume] = cmdtest.Reply("ERR NOTHELD : there is no lease with this id")
	f := cmdtest.StartFake(t, a)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, cmdtest.Puppet("terminated")...)...)
	p.AwaitPuppet()
	f.HangUp()
	p.ExpectTerminated()
	p.ExpectExit(exit.Lost)
	if stderr := p.Stderr(); !strings.Contains(stderr, "there is no lease with this id") {
		t.Errorf("stderr is %q, want why the lock was lost", stderr)
	}
}

// If the daemon restarts during the wait, redlock run resends LOCK with the same id=.
func TestRestartWhileWaiting(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbUnlock: cmdtest.Reply("OK")})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"--verbose", "-w", "1h"}, "true")...)
	first := f.ExpectRequest(ipc.VerbLock)
	f.HangUp()
	second := f.ExpectRequest(ipc.VerbLock)
	if second.ID != first.ID || first.ID == "" || second.Wait > first.Wait || second.Wait < first.Wait-time.Minute {
		t.Errorf("LOCK had %+v and then %+v, want the same id= and what is left of wait=", first, second)
	}
	f.Grant(second)
	f.ExpectRequest(ipc.VerbUnlock)
	p.ExpectExit(0)
	if stderr := p.Stderr(); !strings.Contains(stderr, "while it waited, redlock lost its connection to redlockd once, and connected again") || strings.Contains(stderr, "while the command ran") {
		t.Errorf("stderr is %q, want a word about the restart, and one only", stderr)
	}
}

// With -n, redlock run does not wait for a daemon either.
func TestNoWaitForTheDaemonWithNonblock(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"-n"}, "true")...)
	f.ExpectRequest(ipc.VerbTry)
	f.Stop()
	p.ExpectExit(exit.Unavailable)
	if stderr := p.Stderr(); !strings.Contains(stderr, "is redlockd running?") {
		t.Errorf("stderr is %q, want that no daemon listens", stderr)
	}
}
