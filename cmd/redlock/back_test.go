package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
)

// What the command has given back is nothing to give back.
func TestCommandGivesBack(t *testing.T) {
	t.Parallel()
	const gone = "ERR NOTHELD : there is no lease with this id here (any more)"
	for _, verbose := range []bool{false, true} {
		f := startFake(t, answers{ipc.VerbLock: grants(time.Hour), ipc.VerbUnlock: says(gone)})
		flags, want := []string{}, ""
		if verbose {
			flags, want = []string{"--verbose"}, `lock "job": the command had given it back`
		}
		code, _, stderr := redlock(t, f.socket, runOf(flags, "sh", "-c", "exit 6")...)
		check(t, code, 6, stderr, want)
	}
}

// A command that gave the lock back is left alone; but a daemon that was restarted may
// know nothing of the lease because it forgot: then the lock is lost.
func TestForgottenByRestartedDaemon(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"the same": 6, "restarted": exitLost, "another connection": exitLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan *fake, 1)
			back := sync.OnceFunc(func() { (<-started).say("BACK") })
			end := sync.OnceFunc(func() { (<-started).hangUp() })
			f := startFake(t, answers{
				ipc.VerbLock:   grants(time.Second),
				ipc.VerbUnlock: says("ERR NOTHELD : gone"),
				ipc.VerbResume: grants(time.Second),
				ipc.VerbCheck: func() []string {
					switch name {
					case "restarted":
						back()
					case "another connection":
						end()
					}
					return []string{"ERR NOTHELD : gone"}
				},
			})
			started <- f
			got, _, stderr := redlock(t, f.socket, runOf(nil, "sh", "-c", "sleep 2 & wait; exit 6")...)
			if got != code {
				t.Errorf("exit code %d, want %d; stderr: %s", got, code, stderr)
			}
		})
	}
}

// What the daemon does not know when it is asked was given back; what it does not know
// after its restart was lost.
func TestGivenBack(t *testing.T) {
	notHeld := func(op string) error { return &client.Error{Op: op, Code: "NOTHELD"} }
	over := func(err error) error { return &client.Error{Op: "lease", Code: "LOST", Err: err} }
	for _, test := range []struct {
		err  error
		want bool
	}{
		{over(notHeld("check")), true},
		{notHeld("unlock"), true},
		{over(notHeld("resume")), false},
		{over(&client.Error{Op: "check", Code: "LOST"}), false},
		{over(nil), false},
		{context.DeadlineExceeded, false},
	} {
		if got := givenBack(test.err); got != test.want {
			t.Errorf("%v: given back is %v, want %v", test.err, got, test.want)
		}
	}
}
