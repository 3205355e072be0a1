package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// roleTooLate is a process that is told twice, after the deadline, that its lease was lost.
const roleTooLate = "too late"

func init() { cmdtest.Roles[roleTooLate] = tooLateMain }

func tooLateMain(argv []string) int {
	alarm, err := newBootTimer()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := &child{signals: catchSignals(), lease: unsaid{}, timer: alarm, stderr: os.Stderr, recheck: time.NewTimer(0)}
	over, err := c.startOnThread(&exec.Cmd{Path: argv[0], Args: argv, Stdin: os.Stdin, SysProcAttr: diesWithParent()})
	if err != nil {
		return exit.Report(os.Stderr, "redlock", err)
	}
	defer over()
	c.stop(errors.New("first word"))
	fmt.Println("killed", c.killed)
	c.stop(errors.New("second word"))
	if err = c.watch(); err == nil {
		err = c.outcome()
	}
	return exit.Report(os.Stderr, "redlock", err)
}

// After the deadline, the command gets no SIGTERM, and it is not continued if it has stopped.
// The user sees the first reason for the loss.
func TestLossReportedTooLate(t *testing.T) {
	t.Parallel()
	p := cmdtest.Start(t, roleTooLate, "", "/bin/cat")
	p.ExpectLine("killed true")
	code := p.Wait()
	cmdtest.CheckExit(t, code, exit.Lost, p.Stderr(), "first word")
}

// roleUnsaid is a process that runs a command under a lease. The lease is extended once, and its
// end is not reported.
const roleUnsaid = "unsaid"

func init() { cmdtest.Roles[roleUnsaid] = unsaidMain }

// unsaidMargin is how long before the deadline the command gets SIGKILL.
const unsaidMargin = time.Second

// unsaid is a lease that is extended once, and whose end is not reported.
type unsaid struct{ first, last time.Duration }

func (unsaid) Name() string             { return "job" }
func (unsaid) Context() context.Context { return context.Background() }
func (unsaid) Guard() time.Duration     { return time.Minute }

func (u unsaid) DeadlineBoottime() time.Duration {
	if boottime.Exact() < u.first-unsaidMargin-50*time.Millisecond {
		return u.first
	}
	return u.last
}

func unsaidMain(argv []string) int {
	alarm, err := newBootTimer()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	now := boottime.Exact()
	l := unsaid{now + unsaidMargin + 200*time.Millisecond, now + unsaidMargin + 1200*time.Millisecond}
	c := &child{signals: catchSignals(), lease: l, margin: unsaidMargin, timer: alarm, stderr: os.Stderr, recheck: time.NewTimer(0)}
	over, err := c.startOnThread(&exec.Cmd{Path: argv[0], Args: argv, Stdin: os.Stdin, Stdout: os.Stdout, SysProcAttr: diesWithParent()})
	if err == nil {
		defer over()
		err = c.watch()
	}
	if err == nil {
		err = c.outcome()
	}
	ended := boottime.Exact()
	fmt.Println("extended", ended > l.first-c.margin, "in time", ended < l.last)
	return exit.Report(os.Stderr, "redlock", err)
}

// The boot timer alone enforces the deadline. After the host was suspended, all other timers
// are late.
func TestAlarmKillsByItself(t *testing.T) {
	t.Parallel()
	p := cmdtest.Start(t, roleUnsaid, "", "/bin/cat")
	out := p.ReadAll()
	code := p.Wait()
	cmdtest.CheckExit(t, code, exit.Lost, p.Stderr(), "its deadline passed")
	if out != "extended true in time true\n" {
		t.Errorf("the output is %q", out)
	}
}
