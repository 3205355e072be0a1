package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// roleUnsaid runs a command under a lease that is extended once, and whose end
// nobody says.
const roleUnsaid = "unsaid"

func init() { roles[roleUnsaid] = unsaidMain }

// unsaid is such a lease.
type unsaid struct{ first, last time.Duration }

func (unsaid) Name() string             { return "job" }
func (unsaid) Context() context.Context { return context.Background() }

func (u unsaid) DeadlineBoottime() time.Duration {
	if boottime() < u.first-450*time.Millisecond {
		return u.first
	}
	return u.last
}

func unsaidMain(argv []string) int {
	alarm, err := newAlarm()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	now := boottime()
	l := unsaid{now + 600*time.Millisecond, now + 1600*time.Millisecond}
	c := &child{signals: catchSignals(), lease: l, margin: 400 * time.Millisecond, alarm: alarm, stderr: os.Stderr, again: time.NewTimer(0)}
	over, err := c.startOnThread(&exec.Cmd{Path: argv[0], Args: argv, Stdin: os.Stdin, Stdout: os.Stdout, SysProcAttr: diesWithParent()})
	if err == nil {
		defer over()
		err = c.watch()
	}
	if err == nil {
		err = c.outcome()
	}
	ended := boottime()
	fmt.Println("extended", ended > l.first-c.margin, "in time", ended < l.last)
	return report(os.Stderr, "redlock", err)
}

// The deadline is kept though no timer but the alarm runs: after a suspension of
// the host the others are late.
func TestAlarmKillsByItself(t *testing.T) {
	t.Parallel()
	p := start(t, roleUnsaid, "", "/bin/cat")
	out := p.rest()
	code := p.wait()
	check(t, code, exitLost, p.said(), "nobody said so")
	if out != "extended true in time true\n" {
		t.Errorf("it said %q", out)
	}
}
