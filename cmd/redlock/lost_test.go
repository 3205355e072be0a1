package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// When the daemon reports LOST, redlock run ends the command.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, stderr string
		command      []string
	}{
		{"the command ends by itself", "ended with exit code 3", cmdtest.Puppet("terminated")},
		{"the command ends by SIGTERM", "and SIGTERM ended it", []string{"sh", "-c", "echo up $$; exec cat"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Hour)})
			p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, test.command...)...)
			p.AwaitPuppet()
			f.Broadcast("LOST lock=job lease=secret reason=quorum")
			p.ExpectExit(exit.Lost)
			stderr := p.Stderr()
			if !strings.Contains(stderr, "could not be extended on a quorum") || !strings.Contains(stderr, test.stderr) {
				t.Errorf("stderr is %q", stderr)
			}
		})
	}
}

// If redlock run has to kill the command, it has sent SIGTERM before. It prints the reason.
func TestLostAndKilled(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"as it is":                cmdtest.Puppet(),
		"in a session of its own": append([]string{"setsid"}, cmdtest.Puppet()...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(3 * time.Second)})
			p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
			p.AwaitPuppet()
			f.Broadcast("LOST lock=job lease=secret reason=quorum")
			p.ExpectTerminated()
			p.ExpectExit(exit.Lost)
			if stderr := p.Stderr(); !strings.Contains(stderr, "could not be extended on a quorum") || !strings.Contains(stderr, "got SIGKILL") {
				t.Errorf("stderr is %q, want why it was lost, and that it was killed", stderr)
			}
		})
	}
}

// If the daemon ends and does not start again, the command goes on until the lock is no longer
// certain.
func TestDaemonEnds(t *testing.T) {
	t.Parallel()
	d, socket := cmdtest.StartDaemon(t)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs([]string{"-t", "5s"}, cmdtest.Puppet("terminated")...)...)
	p.AwaitPuppet()
	d.Signal(syscall.SIGKILL)
	p.ExpectTerminated()
	p.ExpectExit(exit.Lost)
	if stderr := p.Stderr(); !strings.Contains(stderr, "there is no connection") {
		t.Errorf("stderr is %q, want why the lock was lost", stderr)
	}
}

// If the command does not stop, redlock run kills it before another client can hold the lock, even
// if the daemon is silent.
func TestKilledBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	const ttl, margin = 80 * time.Second, 4 * time.Second // margin: a twentieth of ttl
	deadline := make(chan time.Duration, 1)
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: func() []string {
		at := boottime.Exact() + ttl/4 // as if the answer had come late
		deadline <- at
		return []string{cmdtest.GrantLine(at, ttl)}
	}})
	p, _ := cmdtest.RunPuppet(t, f.Socket, "-t", ttl.String())
	at := <-deadline
	p.ExpectTerminated()
	told := at - boottime.Exact()
	p.ReadAll()
	p.ExpectExit(exit.Lost)
	left := at - boottime.Exact()
	t.Logf("SIGTERM %v before the deadline, the end %v before it", told, left)
	if told < ttl/10 || told > ttl*3/10 { // more if the answer took time
		t.Errorf("SIGTERM came %v before the deadline, want a fifth of %v", told, ttl)
	}
	if left <= 0 || left > 2*margin {
		t.Errorf("the end came %v before the deadline, want just less than %v", left, margin)
	}
	if stderr := p.Stderr(); !strings.Contains(stderr, "got SIGKILL") {
		t.Errorf("stderr is %q", stderr)
	}
}

// If --grace is shorter than a fifth of the lease time, it does not delay SIGKILL.
func TestKilledInTimeWithLittleGrace(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: func() []string {
		return []string{cmdtest.GrantLine(boottime.Exact()+10*time.Second, 80*time.Second)} // as if the answer had come late
	}})
	p, _ := cmdtest.RunPuppet(t, f.Socket, "-t", "80s", "--grace", "4.5s")
	p.ExpectTerminated()
	p.ReadAll()
	p.ExpectExit(exit.Lost)
	if stderr := p.Stderr(); !regexp.MustCompile(`got SIGKILL ([1-4]|[1-3]\.\d+|\d+(\.\d+)?m)s before the deadline`).MatchString(stderr) { // a twentieth of -t
		t.Errorf("stderr is %q", stderr)
	}
}

// If redlock run was stopped for too long, it does not claim that it killed the command in time.
func TestKilledLate(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	granted := make(chan time.Duration, 1)
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: func() []string {
		deadline := boottime.Exact() + ttl
		granted <- deadline
		return []string{cmdtest.GrantLine(deadline, ttl)}
	}})
	p, _ := cmdtest.RunPuppet(t, f.Socket)
	p.Stop()
	for deadline := <-granted; boottime.Exact() < deadline; {
		<-time.After(deadline - boottime.Exact())
	}
	p.Signal(syscall.SIGCONT)
	p.ReadAll()
	p.ExpectExit(exit.Lost)
	if stderr := p.Stderr(); !strings.Contains(stderr, "after the last known deadline of the lock: others may have held it before that") {
		t.Errorf("stderr is %q", stderr)
	}
}

// A fifth of a short lease time is less than SIGKILL needs.
func TestShortLease(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flags []string
		guard time.Duration // 0: left to the daemon
	}{
		{[]string{"-t", "10s"}, 0},
		{[]string{"-t", "500ms"}, 0},
		{[]string{"-t", "0.3"}, 100 * time.Millisecond},
		{[]string{"-t", "0.1"}, 50 * time.Millisecond},
		{[]string{"-t", "300ms", "--grace", "140ms"}, 140 * time.Millisecond},
		{nil, 0},
	} {
		t.Run(strings.Join(test.flags, " "), func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.Reply("ERR HELD")})
			cmdtest.Run(t, f.Socket, cmdtest.RunArgs(test.flags, "true")...)
			if got := f.ExpectRequest(ipc.VerbLock).Guard; got != test.guard {
				t.Errorf("guard=%v, want %v", got, test.guard)
			}
		})
	}
}

// If only the daemon knows the lease time, redlock run checks --grace once the daemon has
// sent it.
func TestGraceOfUnknownLeaseTime(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
	code, stdout, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs([]string{"--grace", "2s"}, "echo", "must not run")...)
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "--grace 2s")
	if !regexp.MustCompile(`SIGKILL \d\.\d{1,3}s before`).MatchString(stderr) {
		t.Errorf("stderr is %q, want whole milliseconds", stderr)
	}
	if stdout != "" {
		t.Errorf("the command ran: %q", stdout)
	}
	f.ExpectRequest(ipc.VerbLock)
	f.ExpectRequest(ipc.VerbUnlock)
}
