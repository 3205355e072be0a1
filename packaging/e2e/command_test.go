//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// commandBound is how long a command that ends by itself may take. The longest one builds the
// packages, which takes a minute on a busy machine.
const commandBound = 4 * time.Minute

// combined runs a command, and returns its stdout and stderr.
func combined(cmd *exec.Cmd) ([]byte, error) {
	var all bytes.Buffer
	err := finish(cmd, &all, &all, time.After(commandBound))
	return all.Bytes(), err
}

// printed runs a command, and returns its stdout. The error has its stderr.
func printed(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := finish(cmd, &stdout, &stderr, time.After(commandBound))
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	return stdout.Bytes(), err
}

// passes runs a program of tests with more in its environment. It reports what the program printed if that fails.
func passes(t *testing.T, cmd *exec.Cmd, env ...string) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), env...)
	if output, err := combined(cmd); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, output)
	}
}

// finish runs a command until it ends. When tooLong receives, finish kills the command and its
// children, and returns an error. Children that outlive the command keep its output open for at
// most patience.
func finish(cmd *exec.Cmd, stdout, stderr io.Writer, tooLong <-chan time.Time) error {
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, patience
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended, killed := make(chan struct{}), make(chan bool)
	go func() { // until this function returns
		select {
		case <-ended:
			killed <- false
		case <-tooLong:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails only if all have ended
			killed <- true
		}
	}()
	err := cmd.Wait()
	close(ended)
	if <-killed && err != nil {
		return fmt.Errorf("%s: killed, as it had not ended after %v: %w", cmd, time.Since(began).Round(time.Millisecond), err)
	}
	return err
}

// finish kills a command that hangs and its children. The output up to then is kept.
func TestFinishKills(t *testing.T) {
	var stdout strings.Builder
	tooLong := make(chan time.Time)
	err := finish(exec.Command("sh", "-c", "echo begun; sleep 1000 | cat"), closeAt{&stdout, tooLong}, nil, tooLong)
	if err == nil || !strings.Contains(err.Error(), "killed, as it had not ended") || stdout.String() != "begun\n" {
		t.Errorf("error %v, and it printed %q; want that it was killed, and begun", err, stdout.String())
	}
}

// closeAt closes a channel at the first write.
type closeAt struct {
	io.Writer
	written chan time.Time
}

func (c closeAt) Write(b []byte) (int, error) {
	close(c.written)
	return c.Writer.Write(b)
}
