package job

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// If a signal arrives with the grant, redlock run ends as after an earlier signal. It releases the
// lock instead of leaving it until the lease expires.
func TestSignalWithTheGrant(t *testing.T) {
	f := cmdtest.StartFake(t, cmdtest.Granting())
	t.Setenv(cmdtest.SocketVariable, f.Socket)
	s := &signals{others: make(chan os.Signal)} // unbuffered, so that a sent signal was received
	j := &Job{Name: "job", Names: []string{"job"}, Verbose: true, Stderr: cmdtest.Writes(func() { s.others <- syscall.SIGTERM })}
	_, lease, err := j.acquire(s)
	if got, is := errors.AsType[*exit.Failure](err); !is || got.Code != 128+int(syscall.SIGTERM) || lease != nil {
		t.Errorf("the lease is %v, the failure %v, want none and exit code 143", lease, err)
	}
	f.ExpectRequest(ipc.VerbLock)
	f.ExpectRequest(ipc.VerbUnlock)
}

// A Ctrl-C between the grant and the start of the command is not lost. The terminal does not send
// it to the command, and redlock run assumes that the terminal does.
func TestSignalBeforeTheCommand(t *testing.T) {
	f := cmdtest.StartFake(t, cmdtest.Granting())
	lease, err := cmdtest.Dial(t, f.Socket).Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	s := &signals{others: make(chan os.Signal, maxPendingSignals), children: make(chan os.Signal, 1)}
	s.others <- syscall.SIGINT
	ran := filepath.Join(t.TempDir(), "ran")
	j := &Job{Name: "job", Path: "/bin/sh", Argv: Shell("echo > " + ran), Stderr: os.Stderr}
	_, err = j.runUnder(lease, s, func() bool { return true })
	if code := exit.Report(os.Stderr, "redlock", err); code != exit.SignalCode(syscall.SIGINT) {
		t.Errorf("exit code %d, want that of SIGINT", code)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command was run")
	}
}

func TestKillMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 50 * time.Millisecond, time.Second: 50 * time.Millisecond,
		2 * time.Second: 100 * time.Millisecond, 10 * time.Second: 500 * time.Millisecond,
	} {
		if got := killMargin(ttl); got != want {
			t.Errorf("killMargin(%v) = %v, want %v", ttl, got, want)
		}
	}
}

// If the lease time was shortened, redlock run does not kill the command long before the deadline.
// Otherwise it would kill the command while the lease is being extended.
func TestKillMarginOfAnotherLeaseTime(t *testing.T) {
	for guard, want := range map[time.Duration]time.Duration{
		400 * time.Millisecond: 100 * time.Millisecond, // a lease time of 2 s
		6 * time.Second:        1500 * time.Millisecond,
		time.Minute:            1500 * time.Millisecond, // longer: the margin stays as it was at the start
	} {
		c := &child{margin: killMargin(30 * time.Second), lease: guarded{guard: guard}}
		if got := c.killMargin(); got != want {
			t.Errorf("with a guard of %v the margin is %v, want %v", guard, got, want)
		}
	}
}

// guarded is a lease with a guard.
type guarded struct {
	lease
	guard time.Duration
}

func (g guarded) Guard() time.Duration { return g.guard }
