package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/client"
)

// suspendCheck bounds how long the timer for SIGKILL runs at a time: it stands
// still while the host is suspended, and the deadline does not.
const suspendCheck = 50 * time.Millisecond

// child is the command, once it has started. All that happens to it is done by
// one goroutine: nobody else reaps it, so its pid stays its own.
type child struct {
	pid     int
	process *os.Process
	signals *signals
	status  syscall.WaitStatus // how it ended

	lost   error         // why the lock was lost; nil: it was not
	margin time.Duration // between SIGKILL and the deadline
	killAt time.Duration // on CLOCK_BOOTTIME, once it is lost
	kill   *time.Timer   // runs from then on
	killed bool
}

// runUnder runs the command until it has ended, and stops it if the lease is
// lost. A failure means that it could not be run.
func (j *job) runUnder(lease *client.Lease, s *signals) (*child, error) {
	runtime.LockOSThread() // the kernel kills the command when the thread that started it ends
	defer runtime.UnlockOSThread()
	s.passOn()
	c := &child{signals: s, margin: killMargin(leaseTime(j.ttl, lease)), kill: time.NewTimer(0)}
	c.kill.Stop()
	if err := c.start(j.command(lease)); err != nil {
		return nil, cannotRun(j.argv[0], err)
	}
	defer c.process.Release()
	return c, c.watch(lease)
}

func (j *job) command(lease *client.Lease) *exec.Cmd {
	return &exec.Cmd{
		Path:        j.path,
		Args:        j.argv,
		Env:         environment(os.Environ(), j.name, lease.ID(), strconv.FormatUint(lease.Fence(), 10)),
		Stdin:       j.stdin,
		Stdout:      j.stdout,
		Stderr:      j.stderr,
		SysProcAttr: diesWithParent(),
	}
}

// start starts cmd. A script without a #! line is run by the shell, as execvp does.
func (c *child) start(cmd *exec.Cmd) error {
	err := cmd.Start()
	if errors.Is(err, syscall.ENOEXEC) {
		cmd = &exec.Cmd{
			Path: "/bin/sh", Args: append([]string{"/bin/sh", cmd.Path}, cmd.Args[1:]...), Env: cmd.Env,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: cmd.SysProcAttr,
		}
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	c.process, c.pid = cmd.Process, cmd.Process.Pid
	return nil
}

// watch returns when the command has ended. It writes nothing: stderr could
// block, and SIGKILL be late.
func (c *child) watch(lease *client.Lease) error {
	lost := lease.Context().Done()
	for {
		select {
		case <-c.signals.children:
			if ended, err := c.reap(); ended || err != nil {
				return err
			}
		case sig := <-c.signals.others:
			c.forward(sig.(syscall.Signal))
		case <-lost:
			lost = nil
			c.stop(lease)
		case <-c.kill.C:
			c.killWhenDue()
		}
	}
}

// reap learns how the command is, and reports whether it has ended.
func (c *child) reap() (ended bool, err error) {
	var status syscall.WaitStatus
	pid, err := wait(c.pid, &status)
	switch {
	case err != nil:
		return false, fail(exitInternal, "pid %d cannot be waited for: %w", c.pid, err)
	case pid == 0:
		return false, nil // SIGCHLD was for something older
	case status.Stopped():
		c.stopped(status.StopSignal())
		return false, nil
	}
	c.status = status
	return true, nil
}

// wait asks without blocking: pid 0 means that there is nothing new.
func wait(pid int, status *syscall.WaitStatus) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		if err != syscall.EINTR {
			return got, err
		}
	}
}

// stopped makes this process stop with the command where a shell with job
// control looks at it, which would wait for ever otherwise. SIGSTOP is not the
// terminal's: somebody wants the command to stop, who may not think of us.
func (c *child) stopped(by syscall.Signal) {
	if by != syscall.SIGSTOP && underJobControl() {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot fail; SIGCONT is passed on
	}
}

// forward passes a signal on, unless the command has it already.
func (c *child) forward(sig syscall.Signal) {
	if !c.signals.sentToAll(sig) {
		c.send(sig)
	}
}

// send ignores that a command that has ended, and waits to be reaped, takes no
// signals any more. (One that runs as another user takes none from us either.)
func (c *child) send(sig syscall.Signal) { _ = c.process.Signal(sig) }

// stop asks the command to stop, and makes sure that it has before the deadline
// that is known now.
func (c *child) stop(lease *client.Lease) {
	c.killAt = lease.DeadlineBoottime() - c.margin
	c.killWhenDue()
	c.lost = context.Cause(lease.Context())
	if c.killed {
		return
	}
	c.send(syscall.SIGTERM)
	c.send(syscall.SIGCONT) // a stopped one would not notice
}

// killWhenDue kills the command if it is time, and sets the timer if it is not.
func (c *child) killWhenDue() {
	left := c.killAt - boottime()
	if left <= 0 {
		c.send(syscall.SIGKILL)
		c.killed = true
		return
	}
	c.kill.Reset(min(left, suspendCheck))
}

// outcome is what the process ends with once the command has ended.
func (c *child) outcome() error {
	switch {
	case c.lost != nil:
		return fail(exitLost, "%w; %s", c.lost, c.lastWords())
	case c.status.Signaled():
		return exit(signalCode(c.status.Signal()))
	}
	return exit(c.status.ExitStatus())
}

// lastWords says how the command was stopped.
func (c *child) lastWords() string {
	if c.killed {
		return fmt.Sprintf("the command (pid %d) got SIGKILL %v before the deadline of the lock", c.pid, c.margin)
	}
	if c.status.Signaled() {
		return fmt.Sprintf("the command (pid %d) got SIGTERM, and ended by %v", c.pid, c.status.Signal())
	}
	return fmt.Sprintf("the command (pid %d) got SIGTERM, and ended with exit code %d", c.pid, c.status.ExitStatus())
}
