package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/redlockd/redlockd/client"
)

// Exit codes of redlock itself. redlock run also returns the code of its command. Most are
// from sysexits.h, the rest from shells.
const (
	Conflict    = 1   // another process holds the lock (-E changes the code), or it is not held
	Usage       = 64  // the command line, a name or an option is wrong
	Unavailable = 69  // no daemon, or no quorum of nodes
	Internal    = 70  // a defect, here or in the daemon
	System      = 71  // the system refused files or memory
	Lost        = 75  // the lock was lost, and the command stopped
	Unknown     = 76  // redlockd restarted meanwhile, and the outcome is unknown
	Denied      = 77  // not allowed, or over a limit
	CannotRun   = 126 // the command exists and cannot be run
	NotFound    = 127 // the command does not exist
	Signal      = 128 // plus the number of the signal
)

// Failure is an error with the exit code of the process.
type Failure struct {
	Code int
	Err  error // nil: print nothing
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit code %d", f.Code)
	}
	return f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// Errorf returns a failure with a text.
func Errorf(code int, format string, args ...any) error {
	return &Failure{code, fmt.Errorf(format, args...)}
}

// WithCode returns a failure without a text; nil for 0.
func WithCode(code int) error {
	if code == 0 {
		return nil
	}
	return &Failure{Code: code}
}

// Usagef returns the failure for an invalid command line.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }

// Reword returns an error with that text and the exit code of err.
func Reword(err error, text string) error { return &rewordedError{text, err} }

// rewordedError replaces the text of the error that it wraps.
type rewordedError struct {
	text string
	err  error // decides the exit code
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.err }

// Report prints err, if it has a text, and returns the exit code. An error that is not a Failure
// comes from cobra, and means an invalid command line.
func Report(stderr io.Writer, command string, err error) int {
	if err == nil {
		return 0
	}
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		f = &Failure{Usage, err}
	}
	if f.Err != nil {
		fmt.Fprintf(stderr, "redlock: %v\n", f.Err)
	}
	if f.Err != nil && f.Code == Usage {
		fmt.Fprintf(stderr, "Try '%s --help'.\n", command)
	}
	return f.Code
}

// clientCodes maps errors of the client to exit codes. The first match counts.
var clientCodes = []struct {
	err  error
	code int
}{
	{client.ErrUnknown, Unknown},
	{client.ErrHeld, Conflict},
	{client.ErrDeadlock, Conflict},
	{client.ErrNotHeld, Conflict},
	{client.ErrLost, Lost},
	{client.ErrDenied, Denied},
	{client.ErrLimit, Denied},
	{client.ErrInvalid, Usage},
	{client.ErrCancelled, Usage}, // the process of --pid ended
	{client.ErrInternal, Internal},
	{client.ErrNoQuorum, Unavailable},
	{client.ErrShutdown, Unavailable},
	{client.ErrUnavailable, Unavailable},
	{context.DeadlineExceeded, Unavailable}, // no answer in time
}

// FromClient returns the failure for an error of the client.
func FromClient(err error) *Failure {
	for _, c := range clientCodes {
		if errors.Is(err, c.err) {
			return &Failure{c.code, withAdvice(err)}
		}
	}
	return &Failure{Internal, err}
}

// withAdvice adds what to do, if the error does not contain it.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, client.ErrNoQuorum):
		return fmt.Errorf("%w (redlock status shows the nodes)", err)
	case errors.Is(err, client.ErrInternal):
		return fmt.Errorf("%w (please report it, with the log of redlockd)", err)
	}
	return err
}

// SignalCode returns the exit code that shells have for a process that a signal ended.
func SignalCode(sig syscall.Signal) int { return Signal + int(sig) }
