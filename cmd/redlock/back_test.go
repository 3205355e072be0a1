package main

import (
	"context"
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
