package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// The daemon is restarted while the command runs: it takes the lock over, and the
// command notices nothing.
func TestRestartWhileRunning(t *testing.T) {
	t.Parallel()
	a := holding()
	a[ipc.VerbResume] = grants(2 * patience)
	f := startFake(t, a)
	p, _ := runPuppet(t, f.socket, "--verbose")
	f.read(ipc.VerbLock)
	for range 2 {
		f.hangUp()
		resumed := f.read(ipc.VerbResume)
		if resumed.Lease != "secret" || len(resumed.Names) != 1 || resumed.Names[0] != "job" || resumed.Owner == "" {
			t.Errorf("RESUME had %+v, want the lease secret of job, and an owner", resumed)
		}
	}
	p.tell("exit 3")
	f.read(ipc.VerbUnlock)
	p.ends(3)
	for _, want := range []string{"while the command ran, and made again (times: 2)", "given back"} {
		if stderr := p.said(); !strings.Contains(stderr, want) {
			t.Errorf("stderr is %q, want %q in it", stderr, want)
		}
	}
}

// The daemon says that the lock is gone: the command is stopped at once.
func TestRestartThatLosesTheLock(t *testing.T) {
	t.Parallel()
	a := holding()
	a[ipc.VerbResume] = says("ERR NOTHELD : there is no lease with this id")
	f := startFake(t, a)
	p := start(t, roleRedlock, f.socket, runOf(nil, puppet("terminated")...)...)
	p.up()
	f.hangUp()
	p.terminated()
	p.ends(exitLost)
	if stderr := p.said(); !strings.Contains(stderr, "there is no lease with this id") {
		t.Errorf("stderr is %q, want why the lock was lost", stderr)
	}
}

// The daemon is restarted while the lock is waited for.
func TestRestartWhileWaiting(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{ipc.VerbUnlock: says("OK")})
	p := start(t, roleRedlock, f.socket, runOf([]string{"--verbose", "-w", "1h"}, "true")...)
	first := f.read(ipc.VerbLock)
	f.hangUp()
	second := f.read(ipc.VerbLock)
	if second.ID != first.ID || first.ID == "" || second.Wait > first.Wait || second.Wait < first.Wait-time.Minute {
		t.Errorf("LOCK had %+v and then %+v, want the same id= and what is left of wait=", first, second)
	}
	f.grant(second)
	f.read(ipc.VerbUnlock)
	p.ends(0)
	if stderr := p.said(); !strings.Contains(stderr, "while it was waited for, and made again (times: 1)") || strings.Contains(stderr, "while the command ran") {
		t.Errorf("stderr is %q, want a word about the restart, and one only", stderr)
	}
}

// Who does not want to wait does not wait for a daemon either.
func TestDaemonIsGoneForWhoDoesNotWait(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{})
	p := start(t, roleRedlock, f.socket, runOf([]string{"-n"}, "true")...)
	f.read(ipc.VerbTry)
	f.stop()
	p.ends(exitUnavailable)
	if stderr := p.said(); !strings.Contains(stderr, "is redlockd running?") {
		t.Errorf("stderr is %q, want that nobody listens", stderr)
	}
}
