package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

const nestedText = `: this command already runs under it (REDLOCK_NAME) and would wait for itself`

// A command that would wait for the lock that it runs under fails at once, with the exit code for a
// lock that is held. It waits if it can share the lock, and for other locks.
func TestNestedRun(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	for _, test := range []struct {
		outer, inner []string
		code         int
		stderr       string
	}{
		{[]string{"job"}, []string{"run", "job", "true"}, 1, `redlock: lock "job"` + nestedText},
		{[]string{"job"}, []string{"run", "-E", "9", "-w", "60", "job", "true"}, 9, nestedText},
		{[]string{"job"}, []string{"run", "-n", "job", "true"}, 1, ""},
		{[]string{"job"}, []string{"run", "a,job", "true"}, 1, `redlock: lock "a,job"` + nestedText},
		{[]string{"a,job"}, []string{"run", "job", "true"}, 1, nestedText},
		{[]string{"job"}, []string{"lock", "job"}, 1, nestedText},
		{[]string{"job"}, []string{"run", "-s", "job", "true"}, 1, nestedText},
		{[]string{"-s", "job"}, []string{"run", "job", "true"}, 1, nestedText},
		{[]string{"-s", "job"}, []string{"run", "-s", "job", "true"}, 0, ""},
		{[]string{"--slots", "2", "job"}, []string{"run", "--slots", "2", "job", "true"}, 0, ""},
		{[]string{"--slots", "2", "job"}, []string{"run", "--slots", "3", "job", "true"}, 1, nestedText},
		{[]string{"--slots", "2", "job"}, []string{"run", "-s", "job", "true"}, 1, nestedText},
		{[]string{"-s", "job"}, []string{"run", "--slots", "2", "job", "true"}, 1, nestedText},
		{[]string{"--slots", "1", "job"}, []string{"run", "--slots", "1", "job", "true"}, 1, nestedText},
		{[]string{"job"}, []string{"run", "other", "true"}, 0, ""},
		{[]string{"job"}, []string{"run", "-w", "0.2", "--wait-for-self", "job", "true"}, 1, "held by "},
	} {
		args := append(append([]string{"run"}, test.outer...), "--", "env", cmdtest.RoleVariable+"="+cmdtest.RoleRedlock, cmdtest.TestBinary)
		code, _, stderr := cmdtest.Run(t, socket, append(args, test.inner...)...)
		t.Logf("%v under %v", test.inner, test.outer)
		cmdtest.CheckExit(t, code, test.code, stderr, test.stderr)
	}
}

// A command that outlived the lease under which it was started waits as usual. So does one that
// does not know the lease.
func TestWaitForAnotherAfterRun(t *testing.T) {
	t.Setenv("REDLOCK_NAME", "job")
	for _, test := range []struct{ lease, answer, stderr string }{
		{"gone", "ERR NOTHELD : no lease with this id", ""},
		{"gone", "ERR LOST : reason=max", ""},
		{"", "OK", ""},
		{"held", cmdtest.GrantLine(boottime.Exact()+time.Hour, time.Hour), nestedText},
	} {
		t.Setenv("REDLOCK_LEASE", test.lease)
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusReady), ipc.VerbCheck: cmdtest.Reply(test.answer), ipc.VerbUnlock: cmdtest.Reply("OK")})
		p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"-w", "60"}, "true")...)
		want := 1
		if test.stderr == "" {
			f.Grant(f.ExpectRequest(ipc.VerbLock))
			want = 0
		}
		p.ExpectExit(want)
		if got := p.Stderr(); (got == "") != (test.stderr == "") || !strings.Contains(got, test.stderr) {
			t.Errorf("%s: stderr is %q, want %q", test.answer, got, test.stderr)
		}
	}
}
