package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

func Shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// defaultPath is where execvp of glibc looks for a command if PATH is not set.
const defaultPath = "/bin:/usr/bin"

// LookUp finds a command as execvp does. The command gets no PATH if this process has none.
func LookUp(command string) (string, error) {
	if _, isSet := os.LookupEnv("PATH"); !isSet {
		os.Setenv("PATH", defaultPath)
		defer os.Unsetenv("PATH")
	}
	path, err := exec.LookPath(command)
	if errors.Is(err, exec.ErrDot) {
		err = nil // PATH contains the working directory
	}
	return path, cannotRun(command, err)
}

// cannotRun returns the failure to run a command, or nil if err is nil.
func cannotRun(command string, err error) error {
	switch reason, _ := errors.AsType[*exec.Error](err); {
	case err == nil:
		return nil
	case reason != nil:
		err = reason.Err // its text would repeat the command
	}
	code := exit.CannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exit.NotFound
	}
	if code == exit.NotFound && strings.ContainsAny(command, " ;|&<>\n") {
		return exit.Errorf(code, "the command %q cannot be run: %w; write a line for a shell after -c", command, err)
	}
	return exit.Errorf(code, "the command %q cannot be run: %w", command, err)
}

// environment adds to environ the variables that describe the lock to the command.
func environment(environ []string, name string, l *client.Lease) []string {
	return append(slices.Clip(environ),
		"REDLOCK_NAME="+name,
		fenceVariable+"="+strconv.FormatUint(l.Fence(), 10),
		"REDLOCK_LEASE="+l.ID(),
		"REDLOCK_SLOT="+describe.SlotText(l), // set even if empty, because an outer redlock run may have set it
		"REDLOCK_SOCKET="+socket.Path(),
	)
}

// onLost returns a function that runs --on-lost, with the reason of the loss in REDLOCK_LOST. The
// command gets a session of its own, so it is not among the descendants that get SIGKILL. redlock
// run does not wait for it.
func (j *Job) onLost(lease *client.Lease) func(cause error) {
	return func(cause error) {
		if j.OnLost == "" {
			return
		}
		cmd := &exec.Cmd{
			Path: "/bin/sh", Args: []string{"/bin/sh", "-c", j.OnLost},
			Env:    append(environment(os.Environ(), j.Name, lease), "REDLOCK_LOST="+cause.Error()),
			Stdout: j.Stdout, Stderr: j.Stderr, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		}
		err := cmd.Start()
		if err == nil {
			err = cmd.Process.Release()
		}
		if err != nil && term.Writable(j.Stderr) {
			fmt.Fprintf(j.Stderr, "redlock: the command of --on-lost cannot be run: %v\n", err)
		}
	}
}
