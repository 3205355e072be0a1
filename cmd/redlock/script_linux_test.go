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
	"github.com/redlockd/redlockd/ipc"
)

// startScript starts one that a shell runs, with redlock in its PATH.
func startScript(t *testing.T, shell, socket, text string) *process {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%s is not installed", shell)
	}
	bin := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", roleVariable, roleRedlock, testBinary)
	if err := os.WriteFile(filepath.Join(bin, "redlock"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, path, "-c", text)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return startCommand(t, cmd, roleRedlock, socket)
}

var shells3 = []string{"sh", "dash", "bash"}

// What the help shows works in every shell, and the lock is the script's.
func TestScript(t *testing.T) {
	_, socket := startDaemon(t)
	for _, shell := range shells3 {
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
				p.expect(want)
			}
			if pid := holderOf(t, socket, "backup"); pid != p.cmd.Process.Pid {
				t.Errorf("process %d holds the lock, want the script, %d", pid, p.cmd.Process.Pid)
			}
			p.tell("go on")
			for _, want := range []string{"unlocked 0", "again 1", "check 1"} {
				p.expect(want)
			}
			p.ends(0)
			if said := p.said(); !strings.HasPrefix(said, `redlock: unlock "backup": NOTHELD: `) || strings.Count(said, "\n") != 1 {
				t.Errorf("stderr %q, want a word about the second unlock, and no other", said)
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

// The lock ends with the script, however that ends, and is not its shells'.
func TestScriptEnds(t *testing.T) {
	_, socket := startDaemon(t)
	for how, end := range map[string]func(*process) int{
		"by itself": func(p *process) int { p.tell("exit"); return p.wait() },
		"kill -9":   func(p *process) int { p.cmd.Process.Kill(); return p.wait() },
	} {
		t.Run(how, func(t *testing.T) {
			p := startScript(t, "sh", socket, `(redlock lock --pid $$ job); echo "$?"; read -r line; exit 3`)
			p.expect("0")
			code, _, stderr := redlock(t, socket, "run", "-n", "--verbose", "job", "true")
			if code != exitConflict || !strings.Contains(stderr, fmt.Sprintf("(pid %d)", p.cmd.Process.Pid)) {
				t.Errorf("while the script runs: exit code %d, stderr %q; want 1, and the script's pid", code, stderr)
			}
			end(p)
			if code, _, stderr := redlock(t, socket, "run", "job", "true"); code != 0 {
				t.Errorf("after its end: exit code %d, stderr %q; want 0", code, stderr)
			}
		})
	}
}

// A script that waits gives up its place with -w, and by a signal.
func TestScriptWaits(t *testing.T) {
	_, socket := startDaemon(t)
	holder := startScript(t, "sh", socket, `redlock lock job --note mine; echo "$?"; read -r _`)
	holder.expect("0")
	for flags, want := range map[string]int{"-n": 1, "-w 0.2": 1, "-w 0.2 -E 3": 3, "-w 0.2 -s": 1, "--slots 3 -n": 1} {
		p := startScript(t, "sh", socket, "redlock lock job "+flags+`; exit "$?"`)
		p.ends(want)
	}
	holder.tell("end")
	holder.ends(0)
}

// Under redlock run its lock is meant, which no process of its own holds.
func TestHeldUnderRun(t *testing.T) {
	_, socket := startDaemon(t)
	p := startScript(t, "sh", socket, `redlock run --beat 1m job -c 'redlock beat && redlock extend -t 5s && redlock check job && echo held
redlock check other; echo "$?"; redlock check --pid $$ job; echo "$?"
redlock lock other; redlock check other; echo "$?"; REDLOCK_NAME=other REDLOCK_LEASE= redlock check; echo "$?"'`)
	for _, want := range []string{"held", "1", "1", "0", "0"} {
		p.expect(want)
	}
	p.ends(0)
}

// Who was started under redlock run, and has outlived it, has locks of its own by that name.
func TestHeldAfterRun(t *testing.T) {
	_, socket := startDaemon(t)
	p := startScript(t, "sh", socket, `
eval "$(redlock run job -c 'echo export REDLOCK_NAME=$REDLOCK_NAME REDLOCK_LEASE=$REDLOCK_LEASE')"
redlock check job; echo "$?"
redlock lock job && redlock check job && redlock extend job && echo held
redlock check; echo "$?"
redlock unlock job; echo "$?"
redlock run -n job echo free`)
	for _, want := range []string{"1", "held", "1", "0", "free"} {
		p.expect(want)
	}
	p.ends(0)
}

// A lost lock is told of by its exit code, and so is one that was missed to beat.
func TestScriptLoses(t *testing.T) {
	_, socket := startDaemon(t)
	p := startScript(t, "sh", socket, `
redlock lock -t 2s --beat 1s job && redlock beat job && echo beaten
while redlock extend job 2>/dev/null; do :; done
redlock beat job; echo "$?"; redlock check job; echo "$?"; redlock unlock job; echo "$?"
redlock lock job; echo "$?"`)
	p.expect("beaten")
	for _, want := range []string{"75", "75", "75", "0"} {
		p.expect(want)
	}
	p.ends(0)
	if said := p.said(); strings.Count(said, "LOST: ") != 3 {
		t.Errorf("stderr %q, want that LOST is told three times", said)
	}
}

// A shell that becomes the last command of its script holds the lock itself then; but who
// names a process is told of that.
func TestHolderThatBecomesRedlock(t *testing.T) {
	_, socket := startDaemon(t)
	for last, want := range map[string]int{"check job": 0, "unlock job": 0, "check --pid $PPID job": exitConflict} {
		startScript(t, "sh", socket, "redlock lock job && exec redlock "+last).ends(want)
	}
}

// A process that is named with --pid need not be the one that calls redlock.
func TestHolderThatIsNotTheParent(t *testing.T) {
	f := startFake(t, holding())
	p := startScript(t, "sh", f.socket, `redlock lock --pid $PPID --linger 3s -t 20s job; echo "$?"`)
	p.expect("0")
	p.ends(0)
	if req := f.read(ipc.VerbLock); req.PID != os.Getpid() || req.Linger != 3*time.Second || req.TTL != 20*time.Second {
		t.Errorf("LOCK had %+v, want pid=%d linger=3000 ttl=20000", req, os.Getpid())
	}
	if len(f.requests) > 0 {
		t.Errorf("after LOCK the daemon read %v", (<-f.requests).Verb)
	}
}

// A script that ends while its lock is waited for does not get it: there may be another process
// with its number by then.
func TestHolderHasEnded(t *testing.T) {
	f := startFake(t, answers{ipc.VerbUnlock: says("OK")})
	p := startScript(t, "sh", f.socket, "redlock lock --print job & read _")
	lock := f.read(ipc.VerbLock)
	p.stdin.Close()
	p.ends(1) // what read ends with
	f.grant(lock)
	f.read(ipc.VerbUnlock)
	p.awaitSaid(fmt.Sprintf("process %d, which was to hold the lock, has ended", p.cmd.Process.Pid))
	if out := p.rest(); out != "" {
		t.Errorf("it prints %q", out)
	}
}

func TestHolderThatCannotBe(t *testing.T) {
	_, socket := startDaemon(t)
	for args, want := range map[string]int{
		"lock --pid 1 job":        exitDenied,
		"unlock --pid 1 job":      exitDenied,
		"lock --pid 0 job":        exitUsage,
		"lock --pid 99999999 job": exitUsage,
		"lock":                    exitUsage,
		"check":                   exitUsage,
		"lock -n -w 1 job":        exitUsage,
		"beat a b":                exitUsage,
	} {
		if code, _, stderr := redlock(t, socket, strings.Fields(args)...); code != want || stderr == "" {
			t.Errorf("redlock %s: exit code %d, stderr %q; want %d and a word about it", args, code, stderr, want)
		}
	}
}

// What is printed is a word for every shell, whatever is in it.
func TestQuoted(t *testing.T) {
	for _, word := range []string{"", "a b", `it's`, "$(touch /tmp/x) `id` \"\\\n!*", "''", "grün"} {
		for _, shell := range shells3 {
			out, err := exec.Command(shell, "-c", "x="+quoted(word)+`; printf %s "$x"`).Output()
			if err != nil || string(out) != word {
				t.Errorf("%s makes %q of %q (%v)", shell, out, quoted(word), err)
			}
		}
	}
}

// Several locks that a script, or redlock run, has taken at once are asked about at once.
func TestScriptOfSeveral(t *testing.T) {
	_, socket := startDaemon(t)
	p := startScript(t, "sh", socket, `
redlock lock x%2Cy,b && redlock check x%2Cy,b && redlock extend x%2Cy,b && echo held
redlock check x%2Cy 2>/dev/null; echo "$?"
eval "$(redlock check --print --pid $$ x%2Cy,b)"; echo "$REDLOCK_NAME"
redlock unlock x%2Cy,b; echo "$?"
redlock run c,d -c 'redlock check && redlock check c,d && echo held'`)
	for _, want := range []string{"held", "1", "x%2Cy,b", "0", "held"} {
		p.expect(want)
	}
	p.ends(0)
}

// The command under redlock run may give the lock back itself: others have it then.
func TestUnlockUnderRun(t *testing.T) {
	_, socket := startDaemon(t)
	p := startScript(t, "sh", socket, `redlock run -t 1s job -c 'redlock unlock && redlock run -n job echo free; sleep 1.2; redlock check; echo "$?"'; echo "$?"`)
	for _, want := range []string{"free", "1", "0"} {
		p.expect(want)
	}
	p.ends(0)
	if stderr := p.said(); stderr != "" {
		t.Errorf("stderr is %q, want nothing", stderr)
	}
}
