package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// An error about an option names the flag as typed, its value and the allowed range.
func TestOptionErrorsNameTheFlag(t *testing.T) {
	t.Parallel()
	const ttl = "ERR OPTION : ttl=1ms: must be between 100ms and 30s (max_ttl of the config)"
	for _, test := range []struct {
		answer string
		args   []string
		want   string
	}{
		{ttl, []string{"run", "-t", "1ms", "job", "true", "--ttl"}, `redlock: lock "job": -t 1ms: must be between 100ms and 30s (max_ttl of the config)`},
		{ttl, []string{"run", "-nt1ms", "job", "true"}, `-t 1ms: must be between 100ms and 30s (max_ttl of the config)`},
		{ttl, []string{"run", "--ttl=1ms", "job", "true"}, `--ttl 1ms: must be between 100ms and 30s (max_ttl of the config)`},
		{ttl, []string{"run", "-t", "100us", "job", "true"}, `-t 100µs: must be between 100ms and 30s (max_ttl of the config)`},
		{ttl, []string{"lock", "job", "--ttl", "1ms"}, `lock "job": --ttl 1ms: must be between 100ms and 30s (max_ttl of the config)`},
		{ttl, []string{"extend", "-t", "1ms", "job"}, `extend "job": -t 1ms: must be between 100ms and 30s (max_ttl of the config)`},
		{"", []string{"run", "-t", "0", "job", "true"}, `-t 0s: must be more than 0 (omit it for redlockd's default)`},
		{"ERR OPTION : job: max=1ms: at least 100ms", []string{"run", "--max", "1ms", "job", "true"}, `lock "job": --max 1ms: at least 100ms`},
		{"ERR OPTION : guard=7s: at most half of the ttl, 5.5s", []string{"run", "job", "true"}, `--grace 7s: at most half of the ttl, 5.5s`},
		{"ERR OPTION : min=5s: at most 1s (max=, or lease.max_hold of the config)", []string{"run", "--at-least", "5s", "--max", "1s", "job", "true"},
			`--at-least 5s: at most 1s (--max, or lease.max_hold of the config)`},
		{"ERR OPTION : min= with beat=: leave one of the two out", []string{"lock", "--at-least", "5s", "--beat", "1s", "job"}, `--at-least with --beat: leave one of the two out`},
		{"ERR NAME : ttl=1 is a name", []string{"run", "job", "true"}, `NAME: ttl=1 is a name`},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{
			ipc.VerbLock: cmdtest.Reply(test.answer), ipc.VerbTry: cmdtest.Reply(test.answer),
			ipc.VerbCheck: cmdtest.Granting()[ipc.VerbLock], ipc.VerbExtend: cmdtest.Reply(test.answer)})
		code, _, stderr := cmdtest.Run(t, f.Socket, test.args...)
		cmdtest.CheckExit(t, code, exit.Usage, stderr, test.want+"\n")
	}
}

// If a process cannot hold the lock, the error speaks of what the user typed, and says what works
// instead. The texts are those of redlockd.
func TestHolderRefused(t *testing.T) {
	t.Parallel()
	const above = "the client has a PID namespace of its own (a container?), and can name only itself and its parent processes there: use hold=conn (redlock run), or lease="
	for _, test := range []struct {
		reason, args string
		code         int
		want         string
	}{
		{"OPTION : job: hold=pid, process 7: " + above, "lock --pid 7 job", exit.Usage,
			`process 7 cannot hold the lock: redlockd runs in another PID namespace, and there accepts only the process that calls redlock and those above it: use redlock run, which works here` + "\n"},
		{"DENIED : job: hold=pid, process 1: not allowed: pid 1 lives as long as the machine or container: name a process that ends, or use a connection (hold=conn, redlock run)", "lock --pid 1 job", exit.Denied,
			`process 1 cannot hold the lock: pid 1 lives as long as the machine or container: use redlock run, which works here, or name another process with --pid` + "\n"},
		{"OPTION : job: hold=pid, process 0: the daemon cannot see the client's process: it is in another container, or has ended: use hold=conn (redlock run), or lease=", "run --exec job true", exit.Usage,
			`redlock: lock "job": --exec does not work here: redlockd cannot see it (it runs in another container): leave --exec out` + "\n"},
		{"OPTION : job: hold=pid, process 7: this system has no pidfd (Linux has, from 5.3 on): use hold=conn (redlock run)", "run --exec job true", exit.Usage,
			`--exec does not work here: redlockd needs Linux 5.3 or later for that: leave --exec out` + "\n"},
		{"DENIED : job: hold=pid, process 7: not allowed: it is a process of another user (root may)", "lock --pid 7 job", exit.Denied,
			`process 7 cannot hold the lock: not allowed: it is a process of another user (root may)` + "\n"},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.Reply("ERR " + test.reason)})
		code, _, stderr := cmdtest.Run(t, f.Socket, strings.Fields(test.args)...)
		cmdtest.CheckExit(t, code, test.code, stderr, test.want)
	}
}
