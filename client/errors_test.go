package client

import (
	"context"
	"errors"
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

// An error says what was tried, on which lock, and why not, and nothing twice.
func TestTextsOfErrors(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	because, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(errors.New("the caller hung up"))
	for _, test := range []struct {
		err  error
		want string
	}{
		{&Error{Op: "check", Name: "job", Code: "NOTHELD"}, `check "job": NOTHELD: not held`},
		{&Error{Op: "status", Code: "DENIED", Text: "no rule"}, `status: DENIED: no rule`},
		{&Error{Op: "status", Text: "no code"}, `status: no code`},
		{lost("job", "", ErrClosed), `lease "job": LOST: client closed`},
		{lost("job", "it is gone", ErrClosed), `lease "job": LOST: it is gone`},
		{notHeld(ipc.VerbExtend, "job"), `extend "job": NOTHELD: it was unlocked before`},
		{ended("lock", "job", cancelled), `lock "job": gave up waiting: context canceled`},
		{ended("lock", "job", because), `lock "job": gave up waiting: context canceled (the caller hung up)`},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("error %q, want %q", got, test.want)
		}
	}
}
