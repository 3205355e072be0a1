package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// startScript starts shell with the script text and with redlock in its PATH.
func startScript(t *testing.T, shell, socket, text string) *cmdtest.Process {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%s is not installed", shell)
	}
	bin := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", cmdtest.RoleVariable, cmdtest.RoleRedlock, cmdtest.TestBinary)
	if err := os.WriteFile(filepath.Join(bin, "redlock"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := cmdtest.Command(t, path, "-c", "PATH="+bin+":$PATH; "+text)
	return cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, socket)
}

// The script in the help works in every shell, and the script holds the lock.
func TestScript(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	for _, shell := range cmdtest.Shells {
		t.Run(shell, func(t *testing.T) {
			p := startScript(t, shell, socket, `
if redlock lock backup -w 10s; then
	redlock check backup && echo checked
	redlock extend backup -t 20s && echo extended
	eval "$(redlock check --print --pid $$ backup)"
	echo "$REDLOCK_NAME" "${REDLOCK_FENCE:+fence}" "${REDLOCK_LEASE:+lease}" "$((REDLOCK_TTL > 10000))" "${REDLOCK_SLOT:-no slot}"
	redlock lock -n backup; echo "again $?"
	(redlock lock -n backup); echo "$?"
	read -r _
	redlock unlock backup; echo "unlocked $?"
	redlock unlock backup; echo "again $?"
	redlock check backup; echo "check $?"
fi`)
			for _, want := range []string{"checked", "extended", "backup fence lease 1 no slot", "again 1", "1"} {
				p.ExpectLine(want)
			}
			if pid := holderOf(t, socket, "backup"); pid != p.Cmd.Process.Pid {
				t.Errorf("process %d holds the lock, want the script, %d", pid, p.Cmd.Process.Pid)
			}
			p.WriteLine("go on")
			for _, want := range []string{"unlocked 0", "again 1", "check 1"} {
				p.ExpectLine(want)
			}
			p.ExpectExit(0)
			if said := p.Stderr(); !strings.HasPrefix(said, `redlock: unlock "backup": not held by process `) || strings.Count(said, "\n") != 1 {
				t.Errorf("stderr %q, want only an error about the second unlock", said)
			}
		})
	}
}

func holderOf(t *testing.T, socket, name string) int {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	holders, err := c.Who(t.Context(), name)
	if err != nil || len(holders) > 1 {
		t.Fatalf("who %s: %v, %v", name, holders, err)
	}
	if holders == nil {
		return 0
	}
	return holders[0].PID
}

// The lock ends with the script, however the script ends. Its subshells do not hold the lock.
func TestScriptEnds(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	for how, end := range map[string]func(*cmdtest.Process) int{
		"by itself": func(p *cmdtest.Process) int { p.WriteLine("exit"); return p.Wait() },
		"kill -9":   func(p *cmdtest.Process) int { p.Cmd.Process.Kill(); return p.Wait() },
	} {
		t.Run(how, func(t *testing.T) {
			p := startScript(t, "sh", socket, `(redlock lock --pid $$ job); echo "$?"; read -r line; exit 3`)
			p.ExpectLine("0")
			code, _, stderr := cmdtest.Run(t, socket, "run", "-n", "--verbose", "job", "true")
			if code != exit.Conflict || !strings.Contains(stderr, fmt.Sprintf("(pid %d)", p.Cmd.Process.Pid)) {
				t.Errorf("while the script runs: exit code %d, stderr %q; want 1, and the script's pid", code, stderr)
			}
			end(p)
			if code, _, stderr := cmdtest.Run(t, socket, "run", "job", "true"); code != 0 {
				t.Errorf("after its end: exit code %d, stderr %q; want 0", code, stderr)
			}
		})
	}
}

// A waiting script leaves the wait queue after -w, or on a signal.
func TestScriptWaits(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	holder := startScript(t, "sh", socket, `redlock lock job --note mine; echo "$?"; read -r _`)
	holder.ExpectLine("0")
	for flags, want := range map[string]int{"-n": 1, "-w 0.2": 1, "-w 0.2 -E 3": 3, "-w 0.2 -s": 1, "--slots 3 -n": 1} {
		p := startScript(t, "sh", socket, "redlock lock job "+flags+`; exit "$?"`)
		p.ExpectExit(want)
	}
	holder.WriteLine("end")
	holder.ExpectExit(0)
}

// Under redlock run, the commands use the lock of redlock run. No process of the script
// holds that lock.
func TestHeldUnderRun(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, `redlock run --beat 1m job -c 'redlock beat && redlock extend -t 5s && redlock check job && echo held
redlock check other; echo "$?"; redlock check --pid $$ job; echo "$?"
redlock lock other; redlock check other; echo "$?"; REDLOCK_NAME=other REDLOCK_LEASE= redlock check; echo "$?"'`)
	for _, want := range []string{"held", "1", "1", "0", "0"} {
		p.ExpectLine(want)
	}
	p.ExpectExit(0)
}

// A process that outlived the redlock run under which it was started can hold a lock of that name
// itself.
func TestHeldAfterRun(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, `
eval "$(redlock run job -c 'echo export REDLOCK_NAME=$REDLOCK_NAME REDLOCK_LEASE=$REDLOCK_LEASE')"
redlock check job; echo "$?"
redlock lock job && redlock check job && redlock extend job && echo held
redlock check; echo "$?"
redlock unlock job; echo "$?"
redlock run -n job echo free`)
	for _, want := range []string{"1", "held", "1", "0", "free"} {
		p.ExpectLine(want)
	}
	p.ExpectExit(0)
}

// The exit code reports a lost lock. A lock that got no beat in time is lost as well.
func TestScriptLoses(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, `
redlock lock -t 10s --beat 5s job && redlock beat job && echo beaten
while redlock extend job 2>/dev/null; do sleep 0.1; done
redlock beat job; echo "$?"; redlock check job; echo "$?"; redlock unlock job; echo "$?"
redlock lock job; echo "$?"`)
	p.ExpectLine("beaten")
	for _, want := range []string{"75", "75", "75", "0"} {
		p.ExpectLine(want)
	}
	p.ExpectExit(0)
	if said := p.Stderr(); strings.Count(said, "lost (beat)") != 3 {
		t.Errorf("stderr %q, want LOST three times", said)
	}
}

// If a shell becomes redlock by exec, redlock itself holds the lock. With --pid, redlock checks the
// named process.
func TestHolderThatBecomesRedlock(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	for last, want := range map[string]int{"check job": 0, "unlock job": 0, "check --pid $PPID job": exit.Conflict} {
		startScript(t, "sh", socket, "redlock lock job && exec redlock "+last).ExpectExit(want)
	}
}

// The process of --pid need not be the caller of redlock.
func TestHolderThatIsNotTheParent(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := startScript(t, "sh", f.Socket, `redlock lock --pid $PPID --linger 3s -t 20s job; echo "$?"`)
	p.ExpectLine("0")
	p.ExpectExit(0)
	if req := f.ExpectRequest(ipc.VerbLock); req.PID != os.Getpid() || req.Linger != 3*time.Second || req.TTL != 20*time.Second {
		t.Errorf("LOCK had %+v, want pid=%d linger=3000 ttl=20000", req, os.Getpid())
	}
	if len(f.Requests) > 0 {
		t.Errorf("after LOCK the daemon read %v", (<-f.Requests).Verb)
	}
}

// If the script ends while it waits for its lock, it does not get the lock: another process may
// have its pid by then.
func TestHolderHasEnded(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbUnlock: cmdtest.Reply("OK")})
	p := startScript(t, "sh", f.Socket, "redlock lock --print job & read _")
	lock := f.ExpectRequest(ipc.VerbLock)
	p.Stdin.Close()
	p.ExpectExit(1) // the exit code of read
	f.Grant(lock)
	f.ExpectRequest(ipc.VerbUnlock)
	p.AwaitStderr(fmt.Sprintf("process %d, which should hold the lock, has ended", p.Cmd.Process.Pid))
	if out := p.ReadAll(); out != "" {
		t.Errorf("it prints %q", out)
	}
}

func TestInvalidHolder(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	for args, want := range map[string]int{
		"lock --pid 1 job":        exit.Denied,
		"unlock --pid 1 job":      exit.Denied,
		"lock --pid 0 job":        exit.Usage,
		"lock --pid 99999999 job": exit.Usage,
		"lock":                    exit.Usage,
		"check":                   exit.Usage,
		"lock -n -w 1 job":        exit.Usage,
		"beat a b":                exit.Usage,
	} {
		if code, _, stderr := cmdtest.Run(t, socket, strings.Fields(args)...); code != want || stderr == "" {
			t.Errorf("redlock %s: exit code %d, stderr %q; want %d and a word about it", args, code, stderr, want)
		}
	}
}

// redlock check finds the lease of several locks that a script, or redlock run, took together.
func TestScriptOfSeveral(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, `
redlock lock x%2Cy,b && redlock check x%2Cy,b && redlock extend x%2Cy,b && echo held
redlock check x%2Cy 2>/dev/null; echo "$?"
eval "$(redlock check --print --pid $$ x%2Cy,b)"; echo "$REDLOCK_NAME"
redlock unlock x%2Cy,b; echo "$?"
redlock run c,d -c 'redlock check && redlock check c,d && echo held'`)
	for _, want := range []string{"held", "1", "x%2Cy,b", "0", "held"} {
		p.ExpectLine(want)
	}
	p.ExpectExit(0)
}

// The command under redlock run may release the lock itself. Then another client can take it.
func TestUnlockUnderRun(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, `redlock run -t 1s job -c 'redlock unlock && redlock run -n job echo free; sleep 1.2; redlock check; echo "$?"'; echo "$?"`)
	for _, want := range []string{"free", "1", "0"} {
		p.ExpectLine(want)
	}
	p.ExpectExit(0)
	if stderr := p.Stderr(); stderr != "" {
		t.Errorf("stderr is %q, want nothing", stderr)
	}
}
