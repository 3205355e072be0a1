package main

import (
	"testing"

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
