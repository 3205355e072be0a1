package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// lookAgain is how often it is looked whether those that the command has left
// behind have ended, where nobody tells.
const lookAgain = 50 * time.Millisecond

// lease is what is to be known of the lock while the command runs.
type lease interface {
	Name() string
	Context() context.Context // ends when it is lost
	DeadlineBoottime() time.Duration
	Guard() time.Duration // of the deadline, from when on it is lost
}

// child is the command, once it has started. All that happens to it is done by
// one goroutine: nobody else reaps it, so its pid stays its own.
type child struct {
	pid     int
	process *os.Process
	signals *signals
	lease   lease
	same    func() bool   // the daemon is the process that granted the lease
	margin  time.Duration // between SIGKILL and the deadline
	grace   time.Duration // the lease's guard, whatever its lease time; 0: a fifth of that
	alarm   *alarm        // for SIGKILL
	before  []kinsman     // who was there before the command, and is let alone
	stderr  io.Writer

	suspension suspension

	ended  bool
	status syscall.WaitStatus // then: how
	left   time.Time          // then: when others that were left behind were told to end; zero: none were
	told   bool               // somebody was told that these are waited for
	again  *time.Timer        // to look whether they have
	lost   error              // why the lock was lost; nil: it was not
	back   bool               // the command gave the lock back, and goes on without it
	killed bool
	spare  time.Duration // then: what was left of the lock
	immune bool          // to our last signal: it runs as another user
}

// runUnder runs the command until it has ended, and stops it if the lease is
// lost. A failure means that it could not be run.
func (j *job) runUnder(lease *client.Lease, s *signals, same func() bool) (*child, error) {
	alarm, err := newAlarm()
	if err != nil {
		return nil, &failure{exitInternal, err}
	}
	defer alarm.close()
	reserveThreads(spareThreads)
	c := &child{signals: s, lease: lease, same: same, margin: killMargin(leaseTime(j.ttl, lease)), grace: j.grace, alarm: alarm, before: kin(nil), stderr: j.stderr, again: time.NewTimer(0)}
	defer c.again.Stop()
	if sig := s.sooner(); sig != 0 {
		return nil, exit(signalCode(sig))
	}
	s.passOn()
	adoptOrphans()
	over, err := c.startOnThread(j.command(lease))
	if err != nil {
		return nil, cannotRun(j.argv[0], err)
	}
	defer over()
	defer c.process.Release()
	return c, c.watch()
}

func (j *job) command(lease *client.Lease) *exec.Cmd {
	return &exec.Cmd{
		Path:        j.path,
		Args:        j.argv,
		Env:         environment(os.Environ(), j.name, lease),
		Stdin:       j.stdin,
		Stdout:      j.stdout,
		Stderr:      j.stderr,
		SysProcAttr: diesWithParent(),
	}
}

// startOnThread starts cmd on a thread that does nothing else until over is
// called: the kernel kills the command when the thread that started it ends.
func (c *child) startOnThread(cmd *exec.Cmd) (over func(), err error) {
	started, done := make(chan error), make(chan struct{})
	var wg sync.WaitGroup
	over = func() {
		close(done)
		wg.Wait()
	}
	wg.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- c.start(cmd)
		<-done
	})
	if err := <-started; err != nil {
		over()
		return nil, err
	}
	return over, nil
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

// watch returns when the command is over. It writes nothing: stderr could block,
// and SIGKILL be late, but for tellOfKin and tellOfImmunity, which look first.
func (c *child) watch() error {
	lost := c.lease.Context().Done()
	c.alarm.set(c.killAt())
	for !c.over() {
		select {
		case <-c.signals.children:
			if err := c.reap(); err != nil {
				return err
			}
		case sig := <-c.signals.others:
			c.forward(sig.(syscall.Signal))
		case <-lost:
			lost = nil
			c.leaseOver(context.Cause(c.lease.Context()))
		case <-c.alarm.C:
			c.killWhenDue()
		case <-c.again.C: // over looks
		}
	}
	return nil
}

// over reports whether nothing is left to wait for. What a command that ended by
// itself leaves running is meant to run on. Where it was ended, by a signal or
// for want of the lock, what it had started was not: that is told to end, and the
// lock is kept until it has. One that has given the lock back has nothing to keep.
// (Who ended while kin looked may have started another one, which was not seen.)
func (c *child) over() bool {
	switch {
	case !c.ended:
		return false
	case c.lost == nil && (c.back || !c.status.Signaled()):
		return true
	case c.killed:
		if c.sendToKin(syscall.SIGKILL) == 0 && !childEnded() {
			return true
		}
	case len(c.kin()) == 0 && !childEnded():
		return true
	case c.left.IsZero():
		c.left = time.Now()
		c.sendToKin(syscall.SIGTERM)
		c.sendToKin(syscall.SIGCONT)
	case !c.told && time.Since(c.left) > explainAfter:
		c.told = true
		c.tellOfKin()
	}
	c.again.Reset(lookAgain)
	return false
}

// tellOfKin says why redlock run does not end.
func (c *child) tellOfKin() {
	if writable(c.stderr) {
		fmt.Fprintf(c.stderr, "redlock: lock %q: kept until those that the command has left behind have ended: they got SIGTERM, and run yet: pid %s\n",
			c.lease.Name(), c.kinPIDs())
	}
}

func (c *child) kinPIDs() string {
	var pids []string
	for _, k := range c.kin() {
		pids = append(pids, strconv.Itoa(k.pid))
	}
	return strings.Join(pids, ", ")
}

// reap learns how the command is, and buries the orphans that have ended.
func (c *child) reap() error {
	for {
		var status syscall.WaitStatus
		switch pid, err := wait(&status); {
		case pid == 0, err == syscall.ECHILD && c.ended:
			return nil // nothing is new
		case err != nil:
			return fail(exitInternal, "pid %d cannot be waited for: %w", c.pid, err)
		case pid != c.pid:
		case status.Stopped():
			stopForShell(c.suspension.stopped(status.StopSignal()))
		case status.Continued():
			c.suspension.goesOn()
		default:
			c.ended, c.status = true, status
		}
	}
}

// wait asks without blocking: pid 0 means that there is nothing new.
func wait(status *syscall.WaitStatus) (pid int, err error) {
	for {
		pid, err := syscall.Wait4(-1, status, syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if err != syscall.EINTR {
			return pid, err
		}
	}
}

// forward passes a signal on, unless the command has it already.
func (c *child) forward(sig syscall.Signal) {
	if !c.signals.sentToAll(sig) || !c.isInOurGroup() {
		c.sendToWhoRuns(sig)
	}
	if sig == syscall.SIGTSTP { // once the command has ended, nobody shows that others were stopped
		stopForShell(c.suspension.typedNow() || !c.left.IsZero())
	}
}

// isInOurGroup is what a command is that has made no process group of its own, as
// timeout does. Of a command that has ended, those that it has left behind count.
func (c *child) isInOurGroup() bool {
	group, err := syscall.Getpgid(c.pid)
	return err != nil || group == syscall.Getpgrp()
}

// sendToWhoRuns is to the command, or once that has ended, to those it has left behind.
func (c *child) sendToWhoRuns(sig syscall.Signal) {
	if c.left.IsZero() {
		c.send(sig)
	} else {
		c.sendToKin(sig)
	}
}

// send ignores that a command that has ended, and waits to be reaped, takes no
// signals any more. One that runs as another user, as sudo does, takes none from us
// either.
func (c *child) send(sig syscall.Signal) {
	switch err := c.process.Signal(sig); {
	case err == nil:
		c.immune = false
	case errors.Is(err, syscall.EPERM):
		c.immune = true
	}
}

// sendToKin reports how many took the signal: there may be nobody any more.
func (c *child) sendToKin(sig syscall.Signal) (reached int) { return signalAll(c.kin(), sig) }

// kin are the command, and what it has started, as far as they live.
func (c *child) kin() []kinsman { return kin(c.before) }

// leaseOver is for the end of the lease while the command runs.
func (c *child) leaseOver(cause error) {
	if givenBack(cause) && c.same() {
		c.back = true
		return
	}
	c.stop(cause)
}

// givenBack tells whether a lease is over because the command gave it back itself, as with
// redlock unlock: then the daemon, when it is asked, knows neither of it nor of its loss.
// (One that a new connection could not resume may still be relied on: it is lost. So it
// is where the daemon was restarted meanwhile: it may have forgotten.)
func givenBack(err error) bool {
	told, is := errors.AsType[*client.Error](err)
	if is && told.Op == "lease" {
		told, is = errors.AsType[*client.Error](told.Err)
	}
	return is && told.Op != "resume" && errors.Is(told, client.ErrNotHeld)
}

// stop asks the command to stop, as the lock is lost. The alarm makes sure that
// it does before the deadline.
func (c *child) stop(cause error) {
	if c.lost != nil {
		return // it was killed, as the alarm was first
	}
	c.lost = cause
	if c.killWhenDue(); c.killed {
		return
	}
	c.sendToWhoRuns(syscall.SIGTERM)
	c.sendToWhoRuns(syscall.SIGCONT) // a stopped one would not notice
}

// killAt is when the command gets SIGKILL, on CLOCK_BOOTTIME. It moves on while
// the lease is extended.
func (c *child) killAt() time.Duration { return c.lease.DeadlineBoottime() - c.killMargin() }

// killMargin is less than at first where somebody has made the lease time shorter
// (redlock extend), of which the guard tells. One that was given does not, and is longer
// than the margin.
func (c *child) killMargin() time.Duration {
	if c.grace > 0 {
		return c.margin
	}
	return min(c.margin, killMargin(c.lease.Guard()*guardShare))
}

// killWhenDue kills the command, and what it has started, if it is time, and sets
// the alarm if it is not.
func (c *child) killWhenDue() {
	if c.back {
		return // it has nothing to be late for
	}
	at := c.killAt()
	if boottime.Exact() < at {
		c.alarm.set(at)
		return
	}
	if c.lost == nil {
		c.lost = fmt.Errorf("lease %q: LOST: its deadline came, and nobody said so: this host was suspended, redlock run was stopped (Ctrl-Z, SIGSTOP), or it and redlockd did not get the processor", c.lease.Name())
	}
	c.send(syscall.SIGKILL)
	c.sendToKin(syscall.SIGKILL)
	c.spare = c.lease.DeadlineBoottime() - boottime.Exact()
	if c.immune && !c.killed {
		c.tellOfImmunity()
	}
	c.killed = true
}

// tellOfImmunity says at once what lastWords would say when it may be over for long.
func (c *child) tellOfImmunity() {
	if writable(c.stderr) {
		fmt.Fprintf(c.stderr, "redlock: %v; the command (pid %d) cannot be stopped, as it runs as another user, and may be at work while others hold the lock\n", c.lost, c.pid)
	}
}

// outcome is what the process ends with once the command has ended.
func (c *child) outcome() error {
	switch {
	case c.lost != nil:
		return fail(exitLost, "%w; %s%s", c.lost, c.lastWords(), c.ofSurvivors())
	case c.status.Signaled():
		return exit(signalCode(c.status.Signal()))
	}
	return exit(c.status.ExitStatus())
}

// lastWords says how the command was stopped.
func (c *child) lastWords() string {
	switch {
	case c.immune:
		return fmt.Sprintf("the command (pid %d) could not be stopped, as it ran as another user, and may have been at work while others held the lock: write sudo redlock run, not redlock run sudo", c.pid)
	case c.killed && c.spare > 0:
		return fmt.Sprintf("the command (pid %d) got SIGKILL %v before the deadline of the lock", c.pid, c.spare.Round(time.Millisecond))
	case c.killed:
		return fmt.Sprintf("the command (pid %d) got SIGKILL only %v after the last known deadline of the lock: others may have had it by then", c.pid, -c.spare.Round(time.Millisecond))
	case c.status.Signaled():
		return fmt.Sprintf("the command (pid %d) got SIGTERM, and ended by %v", c.pid, c.status.Signal())
	}
	return fmt.Sprintf("the command (pid %d) got SIGTERM, and ended with exit code %d", c.pid, c.status.ExitStatus())
}

// ofSurvivors tells of those that the command has started and that run on: as another
// user, or SIGKILL would have reached them.
func (c *child) ofSurvivors() string {
	pids := c.kinPIDs()
	if !c.killed || pids == "" {
		return ""
	}
	return fmt.Sprintf("; what it has started as another user could not be stopped, and may be at work while others hold the lock: pid %s", pids)
}
