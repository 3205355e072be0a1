package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// If programs that end at once call redlock lock, the script holds the lock. A subshell in
// parentheses holds its own lock. With REDLOCKD_LONG=1, each case runs in both shells, otherwise in
// one of them.
func TestHolderIsTheScript(t *testing.T) {
	t.Parallel()
	for nth, test := range []struct{ name, text string }{
		{"plain", "redlock lock job; :"},
		{"condition on a substitution", "if err=$(redlock lock job 2>&1); then :; fi"},
		{"substitution of two commands", "err=$(redlock lock job || echo no); :"},
		{"timeout", "timeout 10 redlock lock job; :"},
		{"timeout in a substitution", "err=$(timeout 10 redlock lock job 2>&1); :"},
		{"xargs", "echo job | xargs redlock lock; :"},
		{"env, nice, stdbuf", "env A=1 nice -n 1 stdbuf -o0 redlock lock job; :"},
		{"setsid", "setsid --wait redlock lock job; :"},
		{"sudo", "sudo 10 redlock lock job; :"},
		{"shell with one command", `sh -c "redlock lock job 2>&1"; :`},
		{"pipeline", "redlock lock job | cat; :"},
		{"parentheses around one command", "(redlock lock job); :"},
	} {
		shells := []string{"bash", "dash"}
		if !effort.IsLong() {
			shells = shells[nth%2:][:1]
		}
		for _, shell := range shells {
			t.Run(test.name+"/"+shell, func(t *testing.T) {
				f := cmdtest.StartFake(t, cmdtest.Granting())
				p := startScript(t, shell, f.Socket, fakeSudo(t)+test.text)
				p.ReadAll()
				p.ExpectExit(0)
				if req := f.ExpectRequest(ipc.VerbLock); req.PID != p.Cmd.Process.Pid {
					t.Errorf("LOCK had pid=%d, want the script's, %d; stderr %q", req.PID, p.Cmd.Process.Pid, p.Stderr())
				}
			})
		}
	}
}

// fakeSudo makes a program named sudo. Like sudo, it stays the parent of its command.
func fakeSudo(t *testing.T) (text string) {
	t.Helper()
	timeout, err := exec.LookPath("timeout")
	if err != nil {
		t.Skip(err)
	}
	program, err := os.ReadFile(timeout)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sudo"), program, 0o700); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + bin + ":$PATH; "
}

// A subshell in parentheses with more than one command holds the lock until it ends, as MOVING.md
// says.
func TestHolderIsTheSubshell(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "dash"} {
		for _, text := range []string{
			`( redlock lock job; sh -c 'echo $PPID'; : ); :`,
			`( redlock lock job; sh -c 'echo $PPID'; : ) | cat; :`,
		} {
			f := cmdtest.StartFake(t, cmdtest.Granting())
			p := startScript(t, shell, f.Socket, text)
			pid, err := strconv.Atoi(p.ReadLine())
			if err != nil {
				t.Fatal(err)
			}
			p.ExpectExit(0)
			if req := f.ExpectRequest(ipc.VerbLock); req.PID != pid || pid == p.Cmd.Process.Pid {
				t.Errorf("%s: %s: LOCK had pid=%d, want the subshell's, %d", shell, text, req.PID, pid)
			}
		}
	}
}

// With shell=True, Python runs a shell for one command: the Python program holds the lock.
func TestHolderIsThePythonProgram(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := startScript(t, "sh", f.Socket, `exec python3 -c 'import subprocess; subprocess.run("redlock lock job", shell=True)'`)
	p.ExpectExit(0)
	if req := f.ExpectRequest(ipc.VerbLock); req.PID != p.Cmd.Process.Pid {
		t.Errorf("LOCK had pid=%d, want that of Python, %d", req.PID, p.Cmd.Process.Pid)
	}
}

// If a service manager has started or adopted a process, there is no script above it.
func TestHolderIsNotTheServiceManager(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("timeout")
	if err != nil {
		t.Skip(err)
	}
	program, err := os.ReadFile(shell)
	if err != nil {
		t.Fatal(err)
	}
	manager := filepath.Join(t.TempDir(), "systemd")
	if err := os.WriteFile(manager, program, 0o700); err != nil {
		t.Fatal(err)
	}
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := startScript(t, "sh", f.Socket, manager+" 10 timeout 10 redlock lock job; exit $?")
	p.ExpectExit(exit.Usage)
	if said := p.Stderr(); !strings.Contains(said, "the parent process of redlock is systemd (pid ") || !strings.Contains(said, "--pid $$") {
		t.Errorf("stderr is %q", said)
	}
	if len(f.Requests) > 0 {
		t.Errorf("the daemon was asked %v", (<-f.Requests).Verb)
	}
}

// A script may have the name of a service manager, such as /init of a container.
func TestHolderIsAScriptNamedInit(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $$; redlock lock job; :\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := cmdtest.StartFake(t, cmdtest.Granting())
	p := startScript(t, "sh", f.Socket, script+"; :")
	pid, err := strconv.Atoi(p.ReadLine())
	if err != nil {
		t.Fatal(err)
	}
	p.ExpectExit(0)
	if req := f.ExpectRequest(ipc.VerbLock); req.PID != pid {
		t.Errorf("LOCK had pid=%d, want that of the script, %d", req.PID, pid)
	}
}

// A subshell of the script finds the script's lock.
func TestSubshellFindsTheLockOfItsScript(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	for _, shell := range cmdtest.Shells {
		p := startScript(t, shell, socket, `redlock lock job && ( redlock check job; echo "check $?"; x=$(timeout 9 redlock unlock job 2>&1; echo "unlock $?"); echo "$x" )
redlock check job; echo "after $?"`)
		for _, want := range []string{"check 0", "unlock 0", "after 1"} {
			p.ExpectLine(want)
		}
		p.ExpectExit(0)
	}
}
