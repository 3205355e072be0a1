package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// What the client says decides the exit code, whatever it was said with: the more telling
// of two counts.
func TestDaemonFailure(t *testing.T) {
	for _, test := range []struct {
		code int
		errs []error
		says string // and what is added to it
	}{
		{exitConflict, []error{client.ErrHeld}, ""},
		{exitConflict, []error{client.ErrHeld, context.DeadlineExceeded}, ""},
		{exitConflict, []error{client.ErrDeadlock}, ""},
		{exitConflict, []error{client.ErrNotHeld}, ""},
		{exitConflict, []error{client.ErrLost, client.ErrNotHeld}, ""},
		{exitLost, []error{client.ErrLost}, ""},
		{exitLost, []error{client.ErrUnavailable, client.ErrLost}, ""},
		{exitDenied, []error{client.ErrDenied}, ""},
		{exitDenied, []error{client.ErrLimit}, ""},
		{exitUsage, []error{client.ErrInvalid}, ""},
		{exitUsage, []error{client.ErrCancelled}, ""},
		{exitInternal, []error{client.ErrInternal}, " (please report it, with the log of redlockd)"},
		{exitInternal, []error{client.ErrClosed}, ""},
		{exitInternal, []error{context.Canceled}, ""},
		{exitUnavailable, []error{client.ErrNoQuorum}, " (redlock status shows the nodes)"},
		{exitUnavailable, []error{client.ErrNoQuorum, context.DeadlineExceeded}, " (redlock status shows the nodes)"},
		{exitUnavailable, []error{client.ErrShutdown}, ""},
		{exitUnavailable, []error{client.ErrUnavailable}, ""},
		{exitUnavailable, []error{context.DeadlineExceeded}, ""},
	} {
		err := fmt.Errorf("lock: %w", errors.Join(test.errs...))
		f := daemonFailure(err)
		if f.code != test.code || f.Error() != err.Error()+test.says || !errors.Is(f, test.errs[0]) {
			t.Errorf("%v: exit code %d, %q; want %d, and%q added", test.errs, f.code, f, test.code, test.says)
		}
	}
}

// Who typed what cannot be understood is told where there is help; what has no words, such
// as the code of a command, has none here.
func TestReport(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{exit(0), 0, ""},
		{exit(3), 3, ""},
		{exit(exitUsage), exitUsage, ""},
		{fail(exitLost, "it is gone"), exitLost, "redlock: it is gone\n"},
		{fmt.Errorf("run: %w", fail(exitLost, "it is gone")), exitLost, "redlock: it is gone\n"},
		{usage("no NAME"), exitUsage, "redlock: no NAME\nTry 'redlock run --help'.\n"},
		{errors.New("unknown flag: -Q"), exitUsage, "redlock: unknown flag: -Q\nTry 'redlock run --help'.\n"},
	} {
		var stderr bytes.Buffer
		if code := report(&stderr, "redlock run", test.err); code != test.code || stderr.String() != test.says {
			t.Errorf("%v: exit code %d, %q; want %d, %q", test.err, code, stderr.String(), test.code, test.says)
		}
	}
}

// The exit codes are those that help tells of.
func TestExitCodesOfHelp(t *testing.T) {
	for code, word := range map[int]string{
		exitConflict: "somebody else held the lock", exitUsage: "the command line is wrong", exitUnavailable: "redlockd is not available",
		exitInternal: "internal error", exitLost: "the lock was lost", exitDenied: "not allowed",
		exitCannotRun: "the command cannot be run", exitNotFound: "the command is not there",
	} {
		if want := fmt.Sprintf("\n%4d  %s", code, word); !strings.Contains(runHelp, want) {
			t.Errorf("help does not say %q", want)
		}
	}
	if exitSignal != 128 {
		t.Errorf("a signal adds %d, want 128", exitSignal)
	}
}
