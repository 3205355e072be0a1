package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/redlockd/redlockd/client"
)

// Exit codes, beside those of the command that runs under a lock. Most are those
// of sysexits.h, the rest a shell's.
const (
	exitConflict    = 1   // not obtained (-E changes it), or not held
	exitUsage       = 64  // the command line, a name or an option is wrong
	exitUnavailable = 69  // no daemon, or no quorum of nodes
	exitInternal    = 70  // a defect, here or in the daemon
	exitLost        = 75  // the lock was lost, and the command stopped
	exitDenied      = 77  // not allowed, or over a limit
	exitCannotRun   = 126 // the command is there and cannot be run
	exitNotFound    = 127 // the command is not there
	exitSignal      = 128 // and the signal's number
)

// failure is an error that says with which exit code the process ends.
type failure struct {
	code int
	err  error // nil: nothing is to be said
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// fail is the error that says so and ends the process with code.
func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

// exit is the error that ends the process with code without a word; nil for 0.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &failure{code: code}
}

// usage is the error of a command line that cannot be understood.
func usage(format string, args ...any) error { return fail(exitUsage, format, args...) }

// reworded is an error in words that say more here than its own.
type reworded struct {
	text string
	err  error // decides the exit code
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.err }

// report says what err is, if there is something to say, and returns the exit
// code. An error that is no failure is cobra's: of the command line.
func report(stderr io.Writer, command string, err error) int {
	if err == nil {
		return 0
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{exitUsage, err}
	}
	if f.err != nil {
		fmt.Fprintf(stderr, "redlock: %v\n", f.err)
	}
	if f.err != nil && f.code == exitUsage {
		fmt.Fprintf(stderr, "Try '%s --help'.\n", command)
	}
	return f.code
}

// daemonCodes are the exit codes for what the client says. The first that
// matches counts.
var daemonCodes = []struct {
	err  error
	code int
}{
	{client.ErrHeld, exitConflict},
	{client.ErrDeadlock, exitConflict},
	{client.ErrNotHeld, exitConflict},
	{client.ErrLost, exitLost},
	{client.ErrDenied, exitDenied},
	{client.ErrLimit, exitDenied},
	{client.ErrInvalid, exitUsage},
	{client.ErrCancelled, exitUsage}, // as if the process of --pid had ended before
	{client.ErrInternal, exitInternal},
	{client.ErrNoQuorum, exitUnavailable},
	{client.ErrShutdown, exitUnavailable},
	{client.ErrUnavailable, exitUnavailable},
	{context.DeadlineExceeded, exitUnavailable}, // no answer at all
}

// daemonFailure is the failure for an error of the client.
func daemonFailure(err error) *failure {
	for _, c := range daemonCodes {
		if errors.Is(err, c.err) {
			return &failure{c.code, advised(err)}
		}
	}
	return &failure{exitInternal, err}
}

// advised adds what to do about an error, where it does not say so itself.
func advised(err error) error {
	switch {
	case errors.Is(err, client.ErrNoQuorum):
		return fmt.Errorf("%w (redlock status shows the nodes)", err)
	case errors.Is(err, client.ErrInternal):
		return fmt.Errorf("%w (please report it, with the log of redlockd)", err)
	}
	return err
}

// signalCode is the exit code of a process that a signal ended, as shells have it.
func signalCode(sig syscall.Signal) int { return exitSignal + int(sig) }
