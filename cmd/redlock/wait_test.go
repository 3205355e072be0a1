package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

const heldByCron = "- lock=job mode=exclusive host=web3 pid=12 user=cron since=5000 ttl=9000 held=3 nodes=5"

// redlock wait ends when the lock is free. It acquires nothing, and it retries a query that fails.
func TestWait(t *testing.T) {
	t.Parallel()
	who := &changing{}
	who.set(cmdtest.Reply(heldByCron, "OK n=1"))
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: who.answer})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, "wait", "--interval", "100ms", "job")
	f.ExpectLook(ipc.VerbWho)
	who.set(cmdtest.Reply("ERR NOQUORUM : 2 of 5 nodes answered"))
	f.ForgetLooks()
	f.ExpectLook(ipc.VerbWho)
	who.set(cmdtest.Reply("OK n=0"))
	p.ExpectExit(0)
	if out := p.ReadAll(); out != "" || p.Stderr() != "" || len(f.Requests) > 0 {
		t.Errorf("stdout %q, stderr %q, and %d requests, want nothing", out, p.Stderr(), len(f.Requests))
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reply  string
		args   []string
		code   int
		stderr string
	}{
		{"OK n=0", []string{"job"}, 0, ""},
		{heldByCron, []string{"-w", "0.2", "job"}, exit.Conflict, ""},
		{heldByCron, []string{"-w", "0", "job"}, exit.Conflict, ""},
		{"ERR NOQUORUM : 2 of 5 nodes answered", []string{"job"}, exit.Unavailable, "2 of 5 nodes answered"},
		{"ERR NOQUORUM : 2 of 5 nodes answered", []string{"-w", "0.2", "job"}, exit.Unavailable, "2 of 5 nodes answered"},
		{"ERR DENIED : rule web", []string{"-w", "60", "job"}, exit.Denied, "rule web"},
		{"ERR DENIED : rule web", []string{"job"}, exit.Denied, "rule web"},
		{"OK n=0", []string{"a,b"}, exit.Usage, "redlock wait is about one lock"},
		{"OK n=0", []string{"--interval", "1ms", "job"}, exit.Usage, "at least 100ms"},
	} {
		lines := []string{test.reply}
		if test.reply == heldByCron {
			lines = append(lines, "OK n=1")
		}
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: cmdtest.Reply(lines...)})
		code, _, stderr := cmdtest.Run(t, f.Socket, append([]string{"wait"}, test.args...)...)
		cmdtest.CheckExit(t, code, test.code, stderr, test.stderr)
	}
}

// With -w, a redlockd that is not there yet is waited for; without -w it is not (TestNoDaemon). It
// is part of the time of -w.
func TestWaitForDaemon(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"run -w 60 job true", "lock -w 60 job", "wait -w 60 job"} {
		t.Run(args, func(t *testing.T) {
			socket := cmdtest.NewSocket(t)
			p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, strings.Fields(args)...)
			p.AwaitStderr("redlock: waiting for redlockd, which does not answer on " + socket + " yet\n")
			replies, who := cmdtest.Granting(), &changing{}
			who.set(cmdtest.Reply("ERR NOQUORUM : a: not connected yet")) // as a redlockd that has just started
			replies[ipc.VerbWho] = who.answer
			f := cmdtest.StartFakeAt(t, socket, replies)
			if strings.HasPrefix(args, "wait") {
				f.ExpectLook(ipc.VerbWho)
				who.set(cmdtest.Reply("OK n=0"))
			}
			p.ExpectExit(0)
		})
	}
	for _, args := range []string{"run -w 0.2 job true", "lock -w 0.2 job", "wait -w 0.2 job"} {
		code, _, stderr := cmdtest.Run(t, cmdtest.NewSocket(t), strings.Fields(args)...)
		cmdtest.CheckExit(t, code, exit.Unavailable, stderr, " (waited 200ms): ")
	}
}

// The time until redlockd came counts as time of -w.
func TestWaitForDaemonShortensTheWait(t *testing.T) {
	t.Parallel()
	socket := cmdtest.NewSocket(t)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs([]string{"-w", "60"}, "true")...)
	p.AwaitStderr("waiting for redlockd")
	f := cmdtest.StartFakeAt(t, socket, cmdtest.Granting())
	if lock := f.ExpectRequest(ipc.VerbLock); lock.Wait > 59*time.Second || lock.Wait < 10*time.Second {
		t.Errorf("LOCK has wait=%v after more than a second of waiting for redlockd, want less than 59s", lock.Wait)
	}
	p.ExpectExit(0)
}

// A signal ends the wait for redlockd.
func TestSignalEndsWaitForDaemon(t *testing.T) {
	t.Parallel()
	p := cmdtest.Start(t, cmdtest.RoleRedlock, cmdtest.NewSocket(t), cmdtest.RunArgs([]string{"-w", "60"}, "true")...)
	p.AwaitStderr("waiting for redlockd")
	p.Signal(syscall.SIGTERM)
	p.ExpectExit(128 + int(syscall.SIGTERM))
}

// A REDLOCK_SOCKET that cannot be a socket is named as such, at once.
func TestSocketOfAnotherKind(t *testing.T) {
	t.Parallel()
	file := cmdtest.NewSocket(t)
	cmdtest.WriteScript(t, file, "", 0o644)
	for _, args := range []string{"run -w 60 job true", "status", "wait -w 60 job"} {
		code, _, stderr := cmdtest.Run(t, file, strings.Fields(args)...)
		cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "it is not a socket, but a regular file")
		code, _, stderr = cmdtest.Run(t, "tcp://10.0.0.1:6379", strings.Fields(args)...)
		cmdtest.CheckExit(t, code, exit.Usage, stderr, "dial tcp://10.0.0.1:6379: invalid request: redlockd listens on a Unix socket of this host: give the path of the socket, not a URL\n")
	}
}
