package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

func TestExitCodeOfTheCommand(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	plain := filepath.Join(t.TempDir(), "plain")
	cmdtest.WriteScript(t, plain, "x = 1", 0o644)
	bare := filepath.Join(t.TempDir(), "bare")
	cmdtest.WriteScript(t, bare, "exit $1", 0o755) // no #! line
	without := filepath.Join(t.TempDir(), "without")
	cmdtest.WriteScript(t, without, "#!/no/such/interpreter", 0o755)
	for _, test := range []struct {
		args   []string
		want   int
		stderr string
	}{
		{[]string{"run", "job", "--", "true"}, 0, ""},
		{[]string{"run", "job", "true"}, 0, ""},
		{[]string{"run", "job", "--", "sh", "-c", "exit 42"}, 42, ""},
		{[]string{"run", "job", "sh", "-c", "exit 255"}, 255, ""},
		{[]string{"run", "job", "-c", "exit 7"}, 7, ""},
		{[]string{"run", "job", "--command", "exit 8"}, 8, ""},
		{[]string{"run", "-c", "exit 9", "job"}, 9, ""},
		{[]string{"run", "-t", "5", "--max", "1h", "--linger", "0", "--note", "a b", "--grace", "1.5", "job", "true"}, 0, ""},
		{[]string{"run", "-n", "job", "true"}, 0, ""},
		{[]string{"run", "--wait", "60", "job", "true"}, 0, ""},
		{[]string{"run", "-w", "0.5", "job", "true"}, 0, ""},
		{[]string{"run", "-w", "2562047h47m16s", "job", "true"}, 0, ""}, // the longest possible
		{[]string{"run", "job", "sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{[]string{"run", "job", "sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		{[]string{"run", "job", bare, "5"}, 5, ""},
		{[]string{"run", "job", "no-such-command"}, 127, `the command "no-such-command" cannot be run: executable file not found in $PATH`},
		{[]string{"run", "job", "echo a; echo b"}, 127, `the command "echo a; echo b" cannot be run: executable file not found in $PATH; write a line for a shell after -c`},
		{[]string{"run", "job", "--", "-c", "true"}, 127, `the command "-c" cannot be run`},
		{[]string{"run", "job", "./no-such-command"}, 127, `the command "./no-such-command" cannot be run`},
		{[]string{"run", "job", plain}, 126, "permission denied"},
		{[]string{"run", "job", without}, 127, `without" cannot be run: `}, // only the kernel reports this
		{[]string{"run", "-n", "job", "true"}, 0, ""},                      // the lock was released
		{[]string{"run", "job", "/"}, 126, "cannot be run"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			code, stdout, stderr := cmdtest.Run(t, socket, test.args...)
			cmdtest.CheckExit(t, code, test.want, stderr, test.stderr)
			if stdout != "" {
				t.Errorf("stdout is %q, want nothing", stdout)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   []string
		stderr string
	}{
		{nil, "a command is missing"},
		{[]string{"frobnicate"}, `unknown command "frobnicate"`},
		{[]string{"run"}, "the NAME of a lock and a command are missing"},
		{[]string{"run", "job"}, "a command is missing after NAME"},
		{[]string{"run", "job", "--"}, "a command is missing after NAME"},
		{[]string{"run", "9"}, "if a script must hold the lock itself, as with flock NUMBER, use redlock lock NAME"},
		{[]string{"run", "-y", "job", "true"}, "unknown shorthand flag: 'y' in -y\n"},
		{[]string{"run", "-nu", "job", "true"}, "'u' in -u, which flock has: the lock is released when the command ends; instead of flock -u NUMBER, use redlock unlock NAME\n"},
		{[]string{"run", "--close", "job", "true"}, "unknown flag: --close, which flock has: processes that the command leaves running never hold the lock: leave it out\n"},
		{[]string{"run", "-F", "job", "true"}, "'F' in -F, which flock has: redlock run stays, to keep the lock while the command runs: leave it out\n"},
		{[]string{"run", "-shell=false", "job", "true"}, "unknown shorthand flag: 'l' in -ll=false: a flag of more than one letter begins with two dashes\n"},
		{[]string{"run", "-timeout=10s", "job", "true"}, `invalid argument "imeout=10s" for "-t, --ttl" flag: must be a time such as 250ms, 10s or 2m, or a number of seconds such as 5 or 0.5; a flag of more than one letter begins with two dashes` + "\n"},
		{[]string{"run", "-t", "a b=c", "job", "true"}, "or 0.5\n"},
		{[]string{"run", "-no-wait", "job", "true"}, "'o' in -o-wait: a flag of more than one letter begins with two dashes\n"},
		{[]string{"run", "-n=3", "job", "true"}, `invalid argument "3" for "-n, --nonblock" flag: it takes none (how many may hold a lock at a time: --slots 3)` + "\n"},
		{[]string{"lock", "-n=no", "job"}, `invalid argument "no" for "-n, --nonblock" flag: it takes none` + "\n"},
		{[]string{"lock", "-beat=5s", "job"}, "'b' in -beat=5s: a flag of more than one letter begins with two dashes\n"},
		{[]string{"who", "-json=x", "job"}, "'j' in -json=x: a flag of more than one letter begins with two dashes\n"},
		{[]string{"run", "-n", "-w", "1", "job", "true"}, "-n (--nonblock, --nb) and -w (--timeout, --wait) exclude each other"},
		{[]string{"run", "-s", "-x", "job", "true"}, "-s (--shared) and -x (--exclusive, -e) exclude each other"},
		{[]string{"run", "-e", "-s", "job", "true"}, "-s (--shared) and -x (--exclusive, -e) exclude each other"},
		{[]string{"lock", "-e", "--slots", "2", "job"}, "--slots excludes -s (--shared) and -x"},
		{[]string{"run", "-s", "--slots", "2", "job", "true"}, "--slots excludes -s (--shared) and -x"},
		{[]string{"run", "--slots", "0", "job", "true"}, "must be a number from 1 to 1000\n"},
		{[]string{"run", "--nb", "--wait", "1", "job", "true"}, "-n (--nonblock, --nb) and -w (--timeout, --wait) exclude each other"},
		{[]string{"run", "-n", "--wait", "1", "job", "true"}, "-n (--nonblock, --nb) and -w (--timeout, --wait) exclude each other"},
		{[]string{"run", "-w", "2", "--wait", "1", "job", "true"}, "-w (--timeout) and --wait are the same"},
		{[]string{"run", "-w", "soon", "job", "true"}, "must be a time such as"},
		{[]string{"run", "-w", "-1", "job", "true"}, "must be a time such as"},
		{[]string{"run", "-n", "--nb", "job", "true"}, "-n (--nonblock) and --nb are the same"},
		{[]string{"lock", "-x", "--slots", "2", "job"}, "--slots excludes -s (--shared) and -x"},
		{[]string{"lock", "-n", "-w", "2", "job"}, "exclude each other"},
		{[]string{"run", "--exec", "--on-lost", "true", "job", "true"}, "--exec and --on-lost exclude each other: the command replaces redlock run"},
		{[]string{"run", "--exec", "--grace", "1s", "job", "true"}, "--exec and --grace exclude each other: the command replaces redlock run"},
		{[]string{"lock", "--exec", "job"}, "unknown flag: --exec"},
		{[]string{"lock", "--with-parent", "job"}, "unknown flag: --with-parent"},
		{[]string{"lock", "-n", "--wait-for-self", "job"}, "-n (--nonblock, --nb) and --wait-for-self exclude each other"},
		{[]string{"run", "-E", "256", "job", "true"}, `invalid argument "256" for "-E, --conflict-exit-code" flag: must be a number from 0 to 255` + "\n"},
		{[]string{"run", "-E", "-1", "job", "true"}, "must be a number from 0 to 255\n"},
		{[]string{"run", "--slots", "1001", "job", "true"}, "must be a number from 1 to 1000\n"},
		{[]string{"lock", "--pid", "abc", "job"}, `invalid argument "abc" for "--pid" flag: must be a number` + "\n"},
		{[]string{"top", "--count", "x"}, "must be a number of at least 0\n"},
		{[]string{"top", "-n", "-1"}, "must be a number of at least 0\n"},
		{[]string{"run", "job", "-w", "5", "true"}, "write flags before NAME: -w"},
		{[]string{"run", "job", "-c", "echo", "hello"}, "exactly one word"},
		{[]string{"run", "job", "-c"}, "exactly one word, the string for the shell, not 0\n"},
		{[]string{"run", "-c", "true", "job", "true"}, "nothing may follow NAME"},
		{[]string{"run", "-t", "10", "--grace", "0.5", "job", "true"}, "SIGKILL 500ms before"},
		{[]string{"run", "a\nb", "true"}, "NAME"},
		{[]string{"run", "-t", "0", "job", "true"}, "-t 0s: must be more than 0"},
		{[]string{"who"}, "the NAME of a lock is missing: redlock who NAME"},
		{[]string{"watch"}, "the NAME of a lock is missing: redlock watch NAME"},
		{[]string{"force"}, "the NAME of a lock is missing: redlock force NAME"},
		{[]string{"lock"}, "the NAME of a lock is missing: redlock lock NAME"},
		{[]string{"admit"}, "the name of a NODE, or all, is missing: redlock admit NODE|all"},
		{[]string{"who", "a", "b"}, `unexpected argument "b": redlock who NAME`},
		{[]string{"check", "--pid", "0", "a"}, "--pid 0 is not a process"},
		{[]string{"check", "a", "b"}, `unexpected argument "b": redlock check [NAME]`},
		{[]string{"list", "x"}, `unexpected argument "x": redlock list`},
		{[]string{"version", "x"}, `unexpected argument "x": redlock version`},
		{[]string{"help", "nosuch"}, `there is no command "nosuch"`},
		{[]string{"help", "run", "x"}, `unexpected argument "x": redlock help`},
		{[]string{"doctor", "--ignore", "fencing,nothing"}, `there is no check "nothing", but socket, daemon`},
		{[]string{"completion"}, "the name of a SHELL is missing: redlock completion SHELL"},
		{[]string{"completion", "csh"}, "no completion for the shell"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			f := cmdtest.StartFake(t, nil)
			code, _, stderr := here(t, f.Socket, test.args...)
			cmdtest.CheckExit(t, code, exit.Usage, stderr, test.stderr)
			if !strings.Contains(stderr, " --help'.") {
				t.Errorf("stderr %q does not say how to get help", stderr)
			}
			if len(f.Requests) > 0 {
				t.Errorf("the daemon was asked %v", (<-f.Requests).Verb)
			}
		})
	}
}

func TestNotObtained(t *testing.T) {
	t.Parallel()
	const held = "ERR HELD lock=job ttl=7412 host=web3 pid=4121 user=cron since=2588 : held by cron on web3 (pid 4121)"
	for _, test := range []struct {
		name, answer string
		flags        []string
		want         int
		stderr       string
	}{
		{"held", held, []string{"-n"}, 1, ""},
		{"held, and said", held, []string{"-n", "--verbose"}, 1, "held by cron on web3 (pid 4121)"},
		{"held, other code", held, []string{"-n", "-E", "33"}, 33, ""},
		{"held, code 0", held, []string{"-nE0"}, 0, ""},
		{"held while it waited", held, []string{"-w", "1m"}, 1, "held by cron on web3 (pid 4121)"},
		{"held, long flags", held, []string{"--timeout=1m", "--conflict-exit-code=5"}, 5, "held by cron"},
		{"deadlock", "ERR DEADLOCK : this process holds it", []string{"-E", "5"}, 5, "this process holds it"},
		{"no quorum", "ERR NOQUORUM granted=2 needed=3 : 2 of 5 granted: c: timeout", []string{"-n"}, 69, "c: timeout (redlock status shows the nodes)"},
		{"lost before the answer", "ERR LOST reason=expired : job: lost (expired)", nil, 69, "before the command started, so it did not run"},
		{"no quorum while it waited", "ERR NOQUORUM granted=2 needed=3", []string{"-w", "1m", "-E", "5"}, 69, "no quorum"},
		{"denied", "ERR DENIED : rule web", nil, 77, "rule web"},
		{"limit", "ERR LIMIT : leases_per_user = 10", nil, 77, "leases_per_user"},
		{"option", "ERR OPTION : ttl=1h: at most 30s", []string{"-t", "1h"}, 64, "at most 30s"},
		{"grace", "ERR OPTION : guard=20s: at most half of the ttl, 5s", []string{"--grace", "20s"}, 64, "lock \"job\": --grace 20s: at most half of the ttl, 5s\n"},
		{"no grace", "OK", []string{"--grace", "0"}, 64, "lock \"job\": --grace 0s: must be more than 0"},
		{"stopping", "ERR SHUTDOWN", nil, 69, "redlockd is stopping"},
		{"defect", "ERR INTERNAL : a defect", nil, 70, "please report it"},
		{"over at once", cmdtest.GrantLine(time.Millisecond, time.Millisecond), nil, 69, "LOST"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.Reply(test.answer), ipc.VerbTry: cmdtest.Reply(test.answer)})
			code, stdout, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(test.flags, "echo", "must not run")...)
			cmdtest.CheckExit(t, code, test.want, stderr, test.stderr)
			if stdout != "" {
				t.Errorf("the command ran: %q", stdout)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
	start := time.Now()
	code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs([]string{
		"-w", "90", "-t", "30s", "--max", "1h", "--linger", "0.25", "--grace", "8s", "--note", "why, because"}, "true")...)
	cmdtest.CheckExit(t, code, 0, stderr, "")
	got := f.ExpectRequest(ipc.VerbLock).Options
	checkWait(t, got.Wait, 90*time.Second, start)
	want := got
	want.TTL, want.Max = 30*time.Second, time.Hour
	want.Linger, want.Guard, want.Note = 250*time.Millisecond, 8*time.Second, "why, because"
	want.Set = ipc.OptWait | ipc.OptTTL | ipc.OptMax | ipc.OptLinger | ipc.OptGuard | ipc.OptNote | ipc.OptOwner | ipc.OptID
	if got != want {
		t.Errorf("LOCK had %+v, want %+v", got, want)
	}
	f.ExpectRequest(ipc.VerbUnlock)
}

// checkWait checks the wait= of a request: -w is the time for the connection and the lock together,
// so the request has what the connection left of it.
func checkWait(t *testing.T, got, asked time.Duration, start time.Time) {
	t.Helper()
	// wait= is in milliseconds, rounded down.
	if least := asked - time.Since(start) - time.Millisecond; got > asked || got < least {
		t.Errorf("LOCK had wait=%v, want between %v and %v", got, least, asked)
	}
}

// The longest possible -w does not overflow into a time that has already passed.
func TestRequestOfLongWait(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs([]string{"-w", "2562047h47m16s"}, "true")...)
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if got := f.ExpectRequest(ipc.VerbLock).Options.Wait; got < 2562047*time.Hour {
		t.Errorf("LOCK had wait=%v, want 2562047h47m16s", got)
	}
}

// The flag names of flock are aliases.
func TestRequestOfAliases(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flags []string
		verb  ipc.Verb
		wait  time.Duration
	}{
		{[]string{"--timeout", "90"}, ipc.VerbLock, 90 * time.Second},
		{[]string{"--wait", "90"}, ipc.VerbLock, 90 * time.Second},
		{[]string{"--nonblock"}, ipc.VerbTry, 0},
		{[]string{"--nb"}, ipc.VerbTry, 0},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbTry: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
		code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(test.flags, "true")...)
		cmdtest.CheckExit(t, code, 0, stderr, "")
		// The time to connect is part of the wait.
		if got := f.ExpectRequest(test.verb).Options.Wait; got > test.wait || got < max(0, test.wait-cmdtest.Timeout) {
			t.Errorf("%v asked for wait=%v, want %v at most", test.flags, got, test.wait)
		}
	}
}

func TestRequestOfKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flags []string
		want  ipc.Options
	}{
		{[]string{"-s"}, ipc.Options{Set: ipc.OptMode, Mode: ipc.Shared}},
		{[]string{"--shared", "-n"}, ipc.Options{Set: ipc.OptMode, Mode: ipc.Shared}},
		{[]string{"-x"}, ipc.Options{}},
		{[]string{"-e"}, ipc.Options{}},
		{[]string{"-x", "-e"}, ipc.Options{}},
		{[]string{"--slots", "3"}, ipc.Options{Set: ipc.OptSlots, Slots: 3}},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbTry: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
		code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(test.flags, "true")...)
		cmdtest.CheckExit(t, code, 0, stderr, "")
		got := (<-f.Requests).Options
		got.Set, got.Owner, got.ID = got.Set&^(ipc.OptOwner|ipc.OptID), "", ""
		if got != test.want {
			t.Errorf("%v asked for %+v, want %+v", test.flags, got, test.want)
		}
	}
}

// --help shows a default if the flag has one.
func TestHelpOfRun(t *testing.T) {
	code, stdout, stderr := here(t, "", "run", "--help")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if strings.Contains(stdout, "(default )") || !strings.Contains(stdout, "(default 1)") {
		t.Errorf("the help shows wrong defaults:\n%s", stdout)
	}
}

// Shell completion shows the usage of a flag unchanged. --help shows no empty default.
func TestHelpOfFlags(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if usages := cmd.Flags().FlagUsages(); strings.Contains(usages, "(default )") || strings.Contains(usages, "(default 0s)") || strings.Contains(usages, "as --") {
			t.Errorf("redlock %s --help shows wrong defaults:\n%s", cmd.Name(), usages)
		}
		code, stdout, stderr := here(t, "/nowhere", "__complete", cmd.Name(), "--")
		if code != 0 || strings.Contains(stdout, "`") {
			t.Errorf("completion of redlock %s --: exit code %d, stderr %q, stdout %q; want no backquotes", cmd.Name(), code, stderr, stdout)
		}
	}
}

func TestHelpCommand(t *testing.T) {
	for _, args := range [][]string{{"help", "who"}, {"who", "--help"}} {
		code, stdout, stderr := here(t, "/nowhere", args...)
		cmdtest.CheckExit(t, code, 0, stderr, "")
		if !strings.HasPrefix(stdout, "Show who holds a lock") || !strings.Contains(stdout, "help for who") {
			t.Errorf("%v shows %q", args, stdout)
		}
	}
	code, stdout, stderr := here(t, "/nowhere", "help")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if !strings.Contains(stdout, "Common commands") {
		t.Errorf("help shows %q", stdout)
	}
}

func TestNoDaemon(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"run job true", "lock job", "check job", "who job", "list", "status", "watch job", "top", "force --yes job", "admit all", "nodes",
	} {
		code, _, stderr := cmdtest.Run(t, cmdtest.NewSocket(t), strings.Fields(args)...)
		cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "no redlockd listens on /")
	}
}

// A daemon that hangs answers no client, not even redlock run -n.
func TestHungDaemon(t *testing.T) {
	t.Parallel()
	d, socket := cmdtest.StartDaemon(t)
	d.Stop()
	code, _, stderr := cmdtest.Run(t, socket, "run", "-n", "job", "true")
	cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "does not answer: it hangs")
}

func TestConflict(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	holder, pid := cmdtest.RunPuppet(t, socket, "--note", "first")
	for _, flags := range [][]string{{"-n"}, {"-w", "0"}, {"-w", "0.1"}} {
		code, _, stderr := cmdtest.Run(t, socket, cmdtest.RunArgs(append(flags, "-E", "9", "--verbose"), "true")...)
		cmdtest.CheckExit(t, code, 9, stderr, "held by ")
	}
	waiter := cmdtest.Start(t, cmdtest.RoleRedlock, socket, cmdtest.RunArgs(nil, "echo", "mine")...)
	holder.WriteLine("exit 0")
	holder.ExpectExit(0)
	waiter.ExpectLine("mine")
	waiter.ExpectExit(0)
	if pid == holder.Cmd.Process.Pid {
		t.Error("the command replaced redlock run")
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
	code, stdout, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", `echo "$REDLOCK_NAME $REDLOCK_FENCE $REDLOCK_LEASE $REDLOCK_SOCKET"`)...)
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if want := "job 77 secret " + f.Socket + "\n"; stdout != want {
		t.Errorf("the environment is %q, want %q", stdout, want)
	}
}

// A holder of a semaphore knows its slot, because each slot has its own tokens. A command
// without a slot does not inherit REDLOCK_SLOT from an outer redlock run.
func TestEnvironmentOfSlots(t *testing.T) {
	for slot, want := range map[string]string{" slot=2": "2\n", "": "none\n"} {
		t.Setenv("REDLOCK_SLOT", "7")
		placed := func() []string { return []string{cmdtest.GrantLine(boottime.Exact()+time.Minute, time.Minute) + slot} }
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: placed, ipc.VerbUnlock: cmdtest.Reply("OK")})
		code, stdout, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", `echo "${REDLOCK_SLOT:-none}"`)...)
		cmdtest.CheckExit(t, code, 0, stderr, "")
		if stdout != want {
			t.Errorf("with%q REDLOCK_SLOT is %q, want %q", slot, stdout, want)
		}
	}
}

// A script without a #! line gets its arguments and the environment like any command.
func TestScriptOfTheShell(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "tool")
	cmdtest.WriteScript(t, tool, `echo "$REDLOCK_NAME $REDLOCK_FENCE $# $1 $2"; read -r line; echo "$line"; exit 7`, 0o755)
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, tool, "a b", "c")...)
	p.ExpectLine("job 77 2 a b c")
	p.WriteLine("hello")
	p.ExpectLine("hello")
	p.ExpectExit(7)
}

// If a standard stream is closed, Go opens /dev/null in its place, as the help says.
func TestClosedIsNull(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	words := append([]string{"-c", `exec "$@" <&- 2>&-`, "sh", cmdtest.TestBinary}, cmdtest.RunArgs(nil, "sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/2")...)
	p := cmdtest.StartCommand(t, cmdtest.Command(t, "sh", words...), cmdtest.RoleRedlock, f.Socket)
	p.ExpectLine("/dev/null")
	p.ExpectLine("/dev/null")
	p.ExpectExit(0)
}

func TestStdinPassesThrough(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "cat")...)
	p.WriteLine("hello")
	p.ExpectLine("hello")
	p.Stdin.Close()
	p.ExpectExit(0)
}

func TestVerbose(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
	_, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs([]string{"--verbose"}, "sh", "-c", "echo inside >&2")...)
	if lines := strings.Split(stderr, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], `redlock: lock "job": obtained after `) ||
		lines[1] != "inside" || lines[2] != `redlock: lock "job": released` {
		t.Errorf("stderr is %q", stderr)
	}
}

func TestReleasesItsLock(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	c := cmdtest.Dial(t, socket)
	for range 3 { // redlock has released it when it returns
		code, _, stderr := cmdtest.Run(t, socket, cmdtest.RunArgs([]string{"--linger", "30s"}, "false")...)
		cmdtest.CheckExit(t, code, 1, stderr, "")
		if entries, err := c.List(t.Context()); err != nil || len(entries) > 0 {
			t.Errorf("LIST has %+v, %v, want nothing", entries, err)
		}
	}
}

// If the lease was lost before the command ended by itself, redlock run still reports the loss:
// part of the command may have run without the lock.
func TestLostBeforeTheEnd(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("ERR LOST : lost (quorum): it could not be extended")})
	for _, command := range []string{"true", "exit 6"} {
		code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", command)...)
		cmdtest.CheckExit(t, code, exit.Lost, stderr, "had ended by itself, and may have run without the lock")
	}
}

// If the command cannot be run, redlock run releases the lock. Otherwise --linger would keep it.
func TestUnrunnableCommand(t *testing.T) {
	t.Parallel()
	without := filepath.Join(t.TempDir(), "without")
	cmdtest.WriteScript(t, without, "#!/no/such/interpreter", 0o755)
	for _, unlocked := range []string{"OK", "ERR LOST : lost (quorum): it could not be extended"} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply(unlocked)})
		code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(nil, without)...)
		cmdtest.CheckExit(t, code, exit.NotFound, stderr, "cannot be run")
		f.ExpectRequest(ipc.VerbLock)
		f.ExpectRequest(ipc.VerbUnlock)
	}
}

// If PATH contains the working directory, redlock run finds the command there.
func TestCommandInWorkingDirectory(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	dir := t.TempDir()
	cmdtest.WriteScript(t, filepath.Join(dir, "tool"), "exit 7", 0o755)
	cmd := cmdtest.Command(t, "sh", append([]string{"-c", `cd "$0" && PATH=.:$PATH exec "$@"`, dir, cmdtest.TestBinary}, cmdtest.RunArgs(nil, "tool")...)...)
	cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, f.Socket).ExpectExit(7)
}

// If a connected daemon stops answering requests that do not wait, redlock run soon gives up.
func TestDaemonStopsAnswering(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers cmdtest.Replies
		flags   []string
		code    int
		said    string
	}{
		{nil, []string{"-n"}, exit.Unavailable, "does not answer: it hangs"},
		{nil, []string{"-w", "0.1"}, exit.Unavailable, "does not answer: it hangs"},
		{cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(4 * time.Second)}, nil, 6, "unlock \"job\": gave up waiting: context deadline exceeded (the command has ended; other processes get the lock within 0s)"},
	} {
		t.Run(strings.Join(test.flags, " "), func(t *testing.T) {
			t.Parallel()
			f := cmdtest.StartFake(t, test.answers)
			code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(test.flags, "sh", "-c", "exit 6")...)
			cmdtest.CheckExit(t, code, test.code, stderr, test.said)
		})
	}
}

func TestUnlockFails(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Hour), ipc.VerbUnlock: cmdtest.Reply("ERR NOQUORUM : 3 of 5 nodes are down")})
	code, _, stderr := cmdtest.Run(t, f.Socket, cmdtest.RunArgs(nil, "sh", "-c", "exit 6")...)
	cmdtest.CheckExit(t, code, 6, stderr, "3 of 5 nodes are down")
	if !strings.Contains(stderr, "other processes get the lock within 59m") {
		t.Errorf("stderr %q does not say when the lock is free", stderr)
	}
}

// Without PATH, a command is looked for where execvp looks for it, and gets no PATH either.
func TestRunWithoutPath(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	args := append([]string{"-c", `unset PATH; exec "$@"`, "sh", cmdtest.TestBinary}, cmdtest.RunArgs(nil, "env")...)
	p := cmdtest.StartCommand(t, cmdtest.Command(t, "sh", args...), cmdtest.RoleRedlock, f.Socket)
	environment := p.ReadAll()
	p.ExpectExit(0)
	if !strings.Contains(environment, "REDLOCK_NAME=") || strings.Contains(environment, "\nPATH=") || strings.HasPrefix(environment, "PATH=") {
		t.Errorf("the command has the environment\n%s\nwant no PATH in it", environment)
	}
}
