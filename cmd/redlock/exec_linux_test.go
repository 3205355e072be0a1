package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// With --exec the command is the process that was redlock run, and holds the lock until it ends.
func TestExec(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p, pid := cmdtest.RunPuppet(t, socket, "--exec")
	if pid != p.Cmd.Process.Pid {
		t.Errorf("the command is process %d, want %d, which was redlock run", pid, p.Cmd.Process.Pid)
	}
	if holder := holderOf(t, socket, "job"); holder != pid {
		t.Errorf("process %d holds the lock, want %d", holder, pid)
	}
	const note = `redlock: lock "job": with --exec nothing stops the command if the lock is lost: its storage must check $REDLOCK_FENCE, or it must run redlock check before each step that matters` + "\n"
	if got := p.Stderr(); !strings.HasSuffix(got, note) {
		t.Errorf("stderr is %q, want %q at its end", got, note)
	}
	p.Signal(syscall.SIGUSR1) // the signal goes to the command
	p.ExpectLine("got user defined signal 1")
	p.WriteLine("exit 7")
	p.ExpectExit(7)
	cmdtest.ExpectNothingHeld(t, socket)
}

// If the command of --exec is killed, its lock is released. Its processes do not hold it.
func TestExecIsKilled(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, "run", "--exec", "job", "-c", "sleep 100 & echo up $$; wait; : $REDLOCK_FENCE")
	pid := p.AwaitPuppet()
	p.Signal(syscall.SIGKILL)
	p.ExpectExit(-int(syscall.SIGKILL))
	c := cmdtest.Dial(t, socket)
	cmdtest.WaitFor(t, c, "the release", func(entries []client.Entry) bool { return len(entries) == 0 })
	if got := p.Stderr(); pid != p.Cmd.Process.Pid || strings.Contains(got, "--exec") {
		t.Errorf("process %d, stderr %q; want no note, because the script names REDLOCK_FENCE", pid, got)
	}
}

// The command of --exec gets the variables of the lock, and uses it by them. LISTEN_PID and
// WATCHDOG_PID stay right, because the process stays the same.
func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, `LISTEN_PID=$$ WATCHDOG_PID=$$ exec redlock run --exec job -c '
		redlock check && echo mine; test $LISTEN_PID = $$ && test $WATCHDOG_PID = $$ && echo main; test -n "$REDLOCK_FENCE" && redlock unlock && echo unlocked; redlock check; echo $?'`)
	for _, want := range []string{"mine", "main", "unlocked", "1"} {
		p.ExpectLine(want)
	}
	p.ExpectExit(0)
}

// If the command of --exec cannot be run, the lock is released.
func TestExecFails(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	dir := t.TempDir()
	bare, without := dir+"/bare", dir+"/without"
	cmdtest.WriteScript(t, bare, "exit $1", 0o755) // no #! line
	cmdtest.WriteScript(t, without, "#!/no/such/interpreter", 0o755)
	for _, test := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"--exec", "job", bare, "5"}, 5, ""},
		{[]string{"--exec", "job", without}, exit.NotFound, `without" cannot be run: `},
		{[]string{"--exec", "job", "no-such-command"}, exit.NotFound, `the command "no-such-command" cannot be run: `},
	} {
		code, _, stderr := cmdtest.Run(t, socket, append([]string{"run"}, test.args...)...)
		if code != test.code || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%v: exit code %d, stderr %q; want %d, %q", test.args, code, stderr, test.code, test.stderr)
		}
		cmdtest.ExpectNothingHeld(t, socket)
	}
}

// A signal during the wait ends redlock run --exec, as without --exec.
func TestExecSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusReady)})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"--exec"}, "true")...)
	if lock := f.ExpectRequest(ipc.VerbLock); lock.Hold != ipc.HoldPID || lock.Has(ipc.OptPID) {
		t.Errorf("LOCK has hold=%v, pid %d; want hold=pid for the process that connects", lock.Hold, lock.PID)
	}
	p.Signal(syscall.SIGTERM)
	p.ExpectExit(128 + int(syscall.SIGTERM))
}

// Without --exec, the variables of systemd that name redlock run name the command instead. A
// variable that names another process stays.
func TestMainProcessVariables(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	bare := t.TempDir() + "/bare"
	cmdtest.WriteScript(t, bare, `test "$LISTEN_PID" = $$ && echo "$1"; exit 3`, 0o755)
	for _, test := range []struct{ script, want string }{
		{`LISTEN_PID=$$ WATCHDOG_PID=$$ exec redlock run job -c 'echo $((LISTEN_PID - $$)) $((WATCHDOG_PID - $$)) ${REDLOCK_FENCE:+fence}; exit 3'`, "0 0 fence"},
		{`LISTEN_PID=1 WATCHDOG_PID=$$ exec redlock run job -c 'echo $LISTEN_PID $((WATCHDOG_PID - $$)); exit 3'`, "1 0"},
		{`LISTEN_PID=1 exec redlock run job -c 'echo $LISTEN_PID ${WATCHDOG_PID-none}; exit 3'`, "1 none"},
		{`LISTEN_PID=$$ exec redlock run job ` + bare + ` 'a b'; exit 3`, "a b"},
	} {
		p := startScript(t, "sh", socket, test.script)
		p.ExpectLine(test.want)
		p.ExpectExit(3)
	}
	p := startScript(t, "sh", socket, `LISTEN_PID=$$ exec redlock run job -- env -i /no/such/file`)
	p.ExpectExit(127)
	without := t.TempDir() + "/without"
	cmdtest.WriteScript(t, without, "#!/no/such/interpreter", 0o755)
	p = startScript(t, "sh", socket, `LISTEN_PID=$$ exec redlock run job `+without)
	p.ExpectExit(exit.NotFound)
	if want := `the command "` + without + `" cannot be run: `; !strings.Contains(p.Stderr(), want) {
		t.Errorf("stderr is %q, want %q in it", p.Stderr(), want)
	}
}

// With --with-parent, redlock run ends when its parent is killed: it does not run the command later,
// and ends one that runs.
func TestWithParent(t *testing.T) {
	t.Parallel()
	replies := cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusReady), ipc.VerbUnlock: cmdtest.Reply("OK")}
	f := cmdtest.StartFake(t, replies)
	redlock := "env " + cmdtest.RoleVariable + "=" + cmdtest.RoleRedlock + " " + cmdtest.TestBinary
	waiting := startScript(t, "sh", f.Socket, redlock+" run --with-parent job echo never; :")
	f.ExpectRequest(ipc.VerbLock)
	waiting.Signal(syscall.SIGKILL)
	if out := waiting.ReadAll(); out != "" { // it ends when redlock run has ended
		t.Errorf("it printed %q, want nothing", out)
	}
	waiting.ExpectExit(-int(syscall.SIGKILL))

	for _, flags := range []string{"", "--exec "} {
		f := cmdtest.StartFake(t, replies)
		running := startScript(t, "sh", f.Socket, redlock+" run --with-parent "+flags+"job "+strings.Join(cmdtest.Puppet(syscall.SIGTERM.String()), " ")+"; :")
		f.Grant(f.ExpectRequest(ipc.VerbLock))
		running.AwaitPuppet()
		running.Signal(syscall.SIGKILL)
		running.ExpectLine("got terminated")
		if out := running.ReadAll(); out != "" {
			t.Errorf("it printed %q, want nothing", out)
		}
	}
}

// --with-parent is refused if the end of the parent cannot be noticed: it is PID 1, which adopts
// processes whose parent has ended, or it is in another PID namespace.
func TestWithParentRefused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	f := cmdtest.StartFake(t, cmdtest.Replies{})
	for script, want := range map[string]string{
		`unshare --pid --fork --mount-proc sh -c 'redlock run --with-parent job echo never; exit $?'`: "(pid 1), which adopts processes: the process that started redlock has ended, or needs no --with-parent\n",
		`unshare --pid --fork sh -c 'exec redlock run --with-parent job echo never'`:                  "--with-parent: the parent process is outside of this container",
	} {
		p := startScript(t, "sh", f.Socket, script)
		if out := p.ReadAll(); out != "" {
			t.Errorf("%s: printed %q", script, out)
		}
		p.ExpectExit(exit.Usage)
		if !strings.Contains(p.Stderr(), want) {
			t.Errorf("%s: stderr is %q, want %q in it", script, p.Stderr(), want)
		}
	}
}
