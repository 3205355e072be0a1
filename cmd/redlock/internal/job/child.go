package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// recheckInterval is how often redlock run checks the descendants that the command left behind: no
// signal reports their end.
const recheckInterval = 50 * time.Millisecond

// lease is the part of client.Lease that a running command depends on.
type lease interface {
	Name() string
	Context() context.Context // done when the lease is lost
	DeadlineBoottime() time.Duration
	Guard() time.Duration // the lease counts as lost this long before its deadline
}

// child is the running command. One goroutine handles all its events, and nothing else reaps
// children, so its pid cannot be reused.
type child struct {
	pid         int
	process     *os.Process
	signals     *signals
	lease       lease
	sameDaemon  func() bool   // reports whether the daemon is the process that granted the lease
	margin      time.Duration // time between SIGKILL and the deadline
	grace       time.Duration // --grace; 0: the guard is a fifth of the lease time
	timer       *bootTimer    // for SIGKILL
	preexisting []descendant  // children that existed before the command; they are left alone
	stderr      io.Writer

	suspension suspension

	ended           bool
	status          syscall.WaitStatus // once ended
	leftBehindSince time.Time          // when the descendants left behind got SIGTERM, or zero
	reported        bool               // finished has named the descendants
	recheck         *time.Timer        // for finished
	lost            error              // why the lock was lost, or nil
	onLost          func(cause error)  // runs --on-lost; nil in tests
	released        bool               // the command itself released the lock and goes on without it
	killed          bool
	lateUntil       time.Duration // if this process was stopped too long: until when it waits for the daemon's answer; otherwise 0
	killedEarlyBy   time.Duration // if killed: the time that was left until the deadline
	otherUser       bool          // the command runs as another user and cannot be signalled
}

// runUnder runs the command until it has ended, and stops it if the lease is lost. An error means
// that the command could not be run.
func (j *Job) runUnder(lease *client.Lease, s *signals, same func() bool) (*child, error) {
	alarm, err := newBootTimer()
	if err != nil {
		return nil, exit.Errorf(exit.Internal, "%w", err)
	}
	defer alarm.close()
	reserveThreads(reservedThreads)
	c := &child{signals: s, lease: lease, sameDaemon: same, margin: killMargin(leaseTime(j.TTL, lease)), grace: j.Grace, timer: alarm, preexisting: descendants(nil), stderr: j.Stderr, recheck: time.NewTimer(0), onLost: j.onLost(lease)}
	defer c.recheck.Stop()
	if sig := s.pendingSignal(); sig != 0 {
		return nil, exit.WithCode(exit.SignalCode(sig))
	}
	s.catch(harmless) // from now on all signals are forwarded to the command
	adoptOrphans()
	endThread, err := c.startOnThread(j.command(lease))
	if err != nil {
		return nil, cannotRun(j.Argv[0], err)
	}
	defer endThread()
	defer c.process.Release()
	return c, c.watch()
}

func (j *Job) command(lease *client.Lease) *exec.Cmd {
	cmd := &exec.Cmd{
		Path:        j.Path,
		Args:        j.Argv,
		Env:         environment(os.Environ(), j.Name, lease),
		Stdin:       j.Stdin,
		Stdout:      j.Stdout,
		Stderr:      j.Stderr,
		SysProcAttr: diesWithParent(),
	}
	if slices.ContainsFunc(cmd.Env, func(variable string) bool { return namesProcess(variable, os.Getpid()) }) {
		cmd.Args = append([]string{"redlock", ExecForParentCommand, "--", cmd.Path}, cmd.Args...)
		cmd.Path = "/proc/self/exe" // this program, even if its file was replaced
	}
	return cmd
}

// startOnThread starts cmd on a thread that does nothing else until endThread is called: the kernel
// kills the command when the thread that started it ends. endThread waits for the goroutine.
func (c *child) startOnThread(cmd *exec.Cmd) (endThread func(), err error) {
	started, done := make(chan error), make(chan struct{})
	var wg sync.WaitGroup
	endThread = func() {
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
		endThread()
		return nil, err
	}
	return endThread, nil
}

// start starts cmd. Like execvp, it runs a script without a #! line with the shell.
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

// watch returns when the command has ended. It does not write to stderr, which could block and
// delay SIGKILL. Only finished and reportOtherUser write, and they check first.
func (c *child) watch() error {
	lost := c.lease.Context().Done()
	c.timer.set(c.killAt())
	for !c.finished() {
		select {
		case <-c.signals.children:
			if err := c.reap(); err != nil {
				return err
			}
		case sig := <-c.signals.others:
			c.forward(sig.(syscall.Signal))
		case <-lost:
			lost = nil
			if cause := context.Cause(c.lease.Context()); releasedByCommand(cause) && c.sameDaemon() {
				c.released = true
			} else {
				c.stop(cause)
			}
		case <-c.timer.C:
			c.killWhenDue()
		case <-c.recheck.C: // checked by finished
		}
	}
	return nil
}

// finished reports whether there is nothing left to wait for. If the command exits by itself, its
// descendants are meant to go on. If a signal or the loss of the lock ended the command, its
// descendants get SIGTERM, and the lock is kept until they have ended. If the command released the
// lock, there is no lock to keep. (A process that ends during the check may have started another
// one that the check missed. childEnded finds it.)
func (c *child) finished() bool {
	switch {
	case !c.ended:
		return false
	case c.lost == nil && (c.released || !c.status.Signaled()):
		return true
	case c.killed:
		if c.signalDescendants(syscall.SIGKILL) == 0 && !childEnded() {
			return true
		}
	case len(c.descendants()) == 0 && !childEnded():
		return true
	case c.leftBehindSince.IsZero():
		c.leftBehindSince = time.Now()
		c.signalDescendants(syscall.SIGTERM)
		c.signalDescendants(syscall.SIGCONT)
	case !c.reported && time.Since(c.leftBehindSince) > explainAfter:
		if c.reported = true; term.Writable(c.stderr) {
			fmt.Fprintf(c.stderr, "redlock: lock %q: kept until the processes that the command left running have ended; they got SIGTERM and still run: pid %s\n",
				c.lease.Name(), c.descendantPIDs())
		}
	}
	c.recheck.Reset(recheckInterval)
	return false
}

func (c *child) descendantPIDs() string {
	var pids []string
	for _, k := range c.descendants() {
		pids = append(pids, strconv.Itoa(k.pid))
	}
	return strings.Join(pids, ", ")
}

// reap updates the state of the command, and reaps orphans that have ended.
func (c *child) reap() error {
	for {
		var status syscall.WaitStatus
		switch pid, err := wait(&status); {
		case pid == 0, err == syscall.ECHILD && c.ended:
			return nil // nothing to reap
		case err != nil:
			return exit.Errorf(exit.Internal, "pid %d cannot be waited for: %w", c.pid, err)
		case pid != c.pid:
		case status.Stopped():
			stopSelf(c.suspension.commandStopped(status.StopSignal()))
		case status.Continued():
			c.suspension.commandContinued()
		default:
			c.ended, c.status = true, status
		}
	}
}

// wait does not block. pid is 0 if nothing has changed.
func wait(status *syscall.WaitStatus) (pid int, err error) {
	for {
		pid, err := syscall.Wait4(-1, status, syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if err != syscall.EINTR {
			return pid, err
		}
	}
}

// forward sends a signal to the command, unless the terminal has already sent it there.
func (c *child) forward(sig syscall.Signal) {
	// timeout, for example, makes a process group of its own. Once the command has ended, its
	// descendants count as members of the group of this process.
	group, err := syscall.Getpgid(c.pid)
	if !c.signals.sentToGroup(sig) || err == nil && group != syscall.Getpgrp() {
		c.sendToRunning(sig)
	}
	if sig == syscall.SIGTSTP { // no SIGCHLD reports that descendants stopped after the command has ended
		stopSelf(c.suspension.suspendTyped() || !c.leftBehindSince.IsZero())
	}
}

// sendToRunning sends sig to the command or, if that has ended, to its descendants.
func (c *child) sendToRunning(sig syscall.Signal) {
	if c.leftBehindSince.IsZero() {
		c.send(sig)
	} else {
		c.signalDescendants(sig)
	}
}

// send sends sig to the command. A command of another user, such as sudo, cannot be signalled. If
// the command has ended, that is not an error.
func (c *child) send(sig syscall.Signal) {
	switch err := c.process.Signal(sig); {
	case err == nil:
		c.otherUser = false
	case errors.Is(err, syscall.EPERM):
		c.otherUser = true
	}
}

// signalDescendants returns how many processes received the signal.
func (c *child) signalDescendants(sig syscall.Signal) (reached int) {
	return signalProcesses(c.descendants(), sig)
}

// descendants returns the living processes among the command and its descendants.
func (c *child) descendants() []descendant { return descendants(c.preexisting) }

// releasedByCommand reports whether the command itself released the lease, as with redlock unlock.
// Then the daemon knows neither the lease nor its loss. If a new connection could not resume the
// lease, the command may still rely on it, so it counts as lost. The same holds after a restart of
// the daemon, which may have forgotten the lease.
func releasedByCommand(err error) bool {
	told, is := errors.AsType[*client.Error](err)
	if is && told.Op == "lease" {
		told, is = errors.AsType[*client.Error](told.Err)
	}
	return is && told.Op != "resume" && errors.Is(told, client.ErrNotHeld)
}

// stop sends SIGTERM because the lock is lost. The timer sends SIGKILL before the deadline.
func (c *child) stop(cause error) {
	if c.lost != nil {
		return // the timer has already killed it
	}
	c.lost = cause
	if c.killWhenDue(); c.killed {
		return
	}
	c.sendToRunning(syscall.SIGTERM)
	c.sendToRunning(syscall.SIGCONT) // a stopped command cannot handle SIGTERM
	c.runOnLost()
}

// runOnLost runs the command of --on-lost, after the command under the lock got its signal.
func (c *child) runOnLost() {
	if c.onLost != nil {
		c.onLost(c.lost)
		c.onLost = nil
	}
}

// killAt returns when the command gets SIGKILL, on CLOCK_BOOTTIME. Each extension of the lease
// moves it.
func (c *child) killAt() time.Duration { return c.lease.DeadlineBoottime() - c.killMargin() }

// killMargin returns the time between SIGKILL and the deadline. If the lease time was shortened
// (redlock extend), which shows in the guard, it shrinks. With --grace the guard does not change,
// and is longer than the margin.
func (c *child) killMargin() time.Duration {
	if c.grace > 0 {
		return c.margin
	}
	return min(c.margin, killMargin(c.lease.Guard()*guardShare))
}

// killWhenDue kills the command and its descendants if it is time; otherwise it sets the timer.
func (c *child) killWhenDue() {
	if c.released {
		return // the command released the lock
	}
	at := c.killAt()
	if boottime.Exact() < at {
		c.lateUntil = 0
		c.timer.set(at)
		return
	}
	if c.lost == nil && c.isLate(at) {
		c.timer.set(c.lateUntil)
		return
	}
	if c.lost == nil {
		c.lost = fmt.Errorf("lease %q: LOST: its deadline passed before redlockd reported the loss: this host was suspended or overloaded, or redlock run was stopped (Ctrl-Z, SIGSTOP)", c.lease.Name())
	}
	c.send(syscall.SIGKILL)
	c.signalDescendants(syscall.SIGKILL)
	c.killedEarlyBy = c.lease.DeadlineBoottime() - boottime.Exact()
	if c.otherUser && !c.killed {
		c.reportOtherUser()
	}
	c.killed = true
	c.runOnLost()
}

// lateCheck is how long the daemon may take to answer that it has kept the lock while redlock run
// was stopped. The command runs meanwhile: the shell that continues redlock run also continues the
// command.
const lateCheck = 500 * time.Millisecond

// lateTolerance is the least delay of the timer that means that this process was stopped.
// lateMargin is how much longer than lateCheck the client needs to report a loss.
const (
	lateTolerance = 250 * time.Millisecond
	lateMargin    = 100 * time.Millisecond
)

// isLate reports whether the time of SIGKILL was missed because this process was stopped, and the
// client still waits for the daemon's answer.
func (c *child) isLate(killAt time.Duration) bool {
	now := boottime.Exact()
	if c.lateUntil == 0 && now >= killAt+lateTolerance {
		c.lateUntil = now + lateCheck + lateMargin
	}
	return now < c.lateUntil
}

// reportOtherUser prints at once what howStopped prints at the end, which may be much later.
func (c *child) reportOtherUser() {
	if term.Writable(c.stderr) {
		fmt.Fprintf(c.stderr, "redlock: %v; the command (pid %d) cannot be stopped, because it runs as another user, and may continue to work while others hold the lock\n", c.lost, c.pid)
	}
}

// outcome returns the exit code of the process once the command has ended.
func (c *child) outcome() error {
	switch {
	case c.lost != nil:
		return exit.Errorf(exit.Lost, "%w; %s%s", c.lost, c.howStopped(), c.survivors())
	case c.status.Signaled():
		return exit.WithCode(exit.SignalCode(c.status.Signal()))
	}
	return exit.WithCode(c.status.ExitStatus())
}

// howStopped describes how the command was stopped.
func (c *child) howStopped() string {
	switch {
	case c.otherUser:
		return fmt.Sprintf("the command (pid %d) could not be stopped, because it ran as another user, and may have worked while others held the lock: write sudo redlock run, not redlock run sudo", c.pid)
	case c.killed && c.killedEarlyBy > 0:
		return fmt.Sprintf("the command (pid %d) got SIGKILL %v before the deadline of the lock", c.pid, c.killedEarlyBy.Round(time.Millisecond))
	case c.killed:
		return fmt.Sprintf("the command (pid %d) got SIGKILL only %v after the last known deadline of the lock: others may have held it before that", c.pid, -c.killedEarlyBy.Round(time.Millisecond))
	case c.status.Signaled():
		return fmt.Sprintf("the command (pid %d) got SIGTERM, and %s ended it", c.pid, unix.SignalName(c.status.Signal()))
	}
	return fmt.Sprintf("the command (pid %d) got SIGTERM, and ended with exit code %d", c.pid, c.status.ExitStatus())
}

// survivors names the descendants that still run. They run as another user; otherwise SIGKILL would
// have ended them.
func (c *child) survivors() string {
	pids := c.descendantPIDs()
	if !c.killed || pids == "" {
		return ""
	}
	return fmt.Sprintf("; processes that it started as another user could not be stopped, and may continue to work while others hold the lock: pid %s", pids)
}
