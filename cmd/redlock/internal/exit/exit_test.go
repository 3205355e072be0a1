package exit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// The client's error decides the exit code, whatever wraps it. Of two errors, the more specific one
// counts.
func TestDaemonFailure(t *testing.T) {
	for _, test := range []struct {
		code int
		errs []error
		says string // text that must be added to it
	}{
		{Conflict, []error{client.ErrHeld}, ""},
		{Conflict, []error{client.ErrHeld, context.DeadlineExceeded}, ""},
		{Conflict, []error{client.ErrDeadlock}, ""},
		{Conflict, []error{client.ErrNotHeld}, ""},
		{Conflict, []error{client.ErrLost, client.ErrNotHeld}, ""},
		{Lost, []error{client.ErrLost}, ""},
		{Lost, []error{client.ErrUnavailable, client.ErrLost}, ""},
		{Denied, []error{client.ErrDenied}, ""},
		{Denied, []error{client.ErrLimit}, ""},
		{Usage, []error{client.ErrInvalid}, ""},
		{Usage, []error{client.ErrCancelled}, ""},
		{Internal, []error{client.ErrInternal}, " (please report it, with the log of redlockd)"},
		{Internal, []error{client.ErrClosed}, ""},
		{Internal, []error{context.Canceled}, ""},
		{Unavailable, []error{client.ErrNoQuorum}, " (redlock status shows the nodes)"},
		{Unavailable, []error{client.ErrNoQuorum, context.DeadlineExceeded}, " (redlock status shows the nodes)"},
		{Unavailable, []error{client.ErrShutdown}, ""},
		{Unknown, []error{client.ErrUnknown}, ""},
		{Unknown, []error{client.ErrUnknown, client.ErrShutdown}, ""},
		{Unknown, []error{client.ErrUnknown, client.ErrUnavailable}, ""},
		{Unavailable, []error{client.ErrUnavailable}, ""},
		{Unavailable, []error{context.DeadlineExceeded}, ""},
	} {
		err := fmt.Errorf("lock: %w", errors.Join(test.errs...))
		f := FromClient(err)
		if f.Code != test.code || f.Error() != err.Error()+test.says || !errors.Is(f, test.errs[0]) {
			t.Errorf("%v: exit code %d, %q; want %d, and%q added", test.errs, f.Code, f, test.code, test.says)
		}
	}
}

// After a usage error, Report says where to find help. For an error without text, such as the
// exit code of a command, it prints nothing.
func TestReport(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{WithCode(0), 0, ""},
		{WithCode(3), 3, ""},
		{WithCode(Usage), Usage, ""},
		{Errorf(Lost, "it is gone"), Lost, "redlock: it is gone\n"},
		{fmt.Errorf("run: %w", Errorf(Lost, "it is gone")), Lost, "redlock: it is gone\n"},
		{Usagef("no NAME"), Usage, "redlock: no NAME\nTry 'redlock run --help'.\n"},
		{errors.New("unknown flag: -Q"), Usage, "redlock: unknown flag: -Q\nTry 'redlock run --help'.\n"},
	} {
		var stderr bytes.Buffer
		if code := Report(&stderr, "redlock run", test.err); code != test.code || stderr.String() != test.says {
			t.Errorf("%v: exit code %d, %q; want %d, %q", test.err, code, stderr.String(), test.code, test.says)
		}
	}
}
