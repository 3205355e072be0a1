package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
)

// stop makes a process hang.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("%v does not stop: %v %v", p.cmd.Args, status, err)
	}
}

// detached makes a command a session of its own: it has no terminal in common
// with who runs the tests.
func detached(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	p := startCommand(t, detached(command(t, testBinary, runOf(nil, puppet()...)...)), roleRedlock, f.socket)
	p.up()
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
	} {
		p.signal(sig)
		p.expect("got " + sig.String())
	}
	p.tell("exit 11")
	p.ends(11)
}

// Signals that come together all reach the command: here while redlock run is stopped.
func TestSignalsThatComeTogether(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	p := startCommand(t, detached(command(t, testBinary, runOf(nil, puppet()...)...)), roleRedlock, f.socket)
	p.up()
	p.stop()
	want := map[string]bool{"got " + syscall.SIGCONT.String(): true}
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH,
	} {
		p.signal(sig)
		want["got "+sig.String()] = true
	}
	for p.signal(syscall.SIGCONT); len(want) > 0; delete(want, p.line()) {
	}
	p.tell("exit 11")
	p.ends(11)
}

// A signal that comes with the grant ends redlock run as one before it does, and the
// lock is given back, not left to its lease time.
func TestSignalWithTheGrant(t *testing.T) {
	f := startFake(t, holding())
	t.Setenv(socketOfTests, f.socket)
	s := &signals{others: make(chan os.Signal)} // of no length: who sends is heard
	j := &job{name: "job", names: []string{"job"}, verbose: true, stderr: writes(func() { s.others <- syscall.SIGTERM })}
	_, lease, err := j.obtain(s)
	if got, is := errors.AsType[*failure](err); !is || got.code != 128+int(syscall.SIGTERM) || lease != nil {
		t.Errorf("the lease is %v, the failure %v, want none and exit code 143", lease, err)
	}
	f.read(ipc.VerbLock)
	f.read(ipc.VerbUnlock)
}

// writes is called when it is written that the lock was obtained.
type writes func()

func (w writes) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "obtained") {
		w()
	}
	return len(text), nil
}

func TestSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			f := startFake(t, nil)
			p := start(t, roleRedlock, f.socket, runOf(nil, "echo", "must not run")...)
			f.read(ipc.VerbLock)
			p.signal(sig)
			p.ends(128 + int(sig))
			if verbs := f.left(); !slices.Equal(verbs, []ipc.Verb{ipc.VerbCancel}) {
				t.Errorf("at its end the daemon read %v, want CANCEL", verbs)
			}
			if out := p.rest(); out != "" || p.said() != "" {
				t.Errorf("stdout %q, stderr %q, want nothing", out, p.said())
			}
		})
	}
}

// A daemon that accepts connections and says nothing.
func TestSignalWhileConnecting(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := start(t, roleRedlock, socket, runOf(nil, "true")...)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.signal(syscall.SIGINT)
	p.ends(128 + int(syscall.SIGINT))
}

func TestWaiterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	holder, _ := runPuppet(t, socket)
	p := start(t, roleRedlock, socket, runOf(nil, "true")...)
	c := dial(t, socket)
	waitFor(t, c, "a waiter in LIST", func(entries []client.Entry) bool { return len(entries) == 2 })
	p.signal(syscall.SIGINT)
	p.ends(128 + int(syscall.SIGINT))
	waitFor(t, c, "no waiter in LIST", func(entries []client.Entry) bool { return len(entries) == 1 })
	holder.tell("exit 0")
	holder.ends(0)
}

// What redlock run was started to ignore is ignored by the command, too.
func TestNohup(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	args := append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", testBinary},
		runOf(nil, "sh", "-c", "kill -HUP $$ $PPID; echo alive")...)
	p := startCommand(t, command(t, "sh", args...), roleRedlock, f.socket)
	p.expect("alive")
	p.ends(0)
}

func TestKilledTogether(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	p, _ := runPuppet(t, socket)
	p.signal(syscall.SIGKILL)
	if out := p.rest(); out != "" { // it ends once the puppet has
		t.Errorf("the puppet was not killed, but said %q", out)
	}
	p.ends(-int(syscall.SIGKILL))
	code, _, stderr := redlock(t, socket, runOf([]string{"-w", "10"}, "true")...)
	check(t, code, 0, stderr, "")
}

func dial(t *testing.T, socket string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// waitFor asks for LIST until it is as wanted.
func waitFor(t *testing.T, c *client.Client, what string, ok func([]client.Entry) bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		entries, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ok(entries) {
			return
		}
	}
	t.Fatalf("there never was %s", what)
}

// Ctrl-C that is typed when the lock is there, and the command is not, is not lost: the command
// would not get it from the terminal, nor from us, who take it that it does.
func TestSignalBeforeTheCommand(t *testing.T) {
	f := startFake(t, holding())
	lease, err := dial(t, f.socket).Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	s := &signals{others: make(chan os.Signal, pending), children: make(chan os.Signal, 1)}
	s.others <- syscall.SIGINT
	ran := filepath.Join(t.TempDir(), "ran")
	j := &job{name: "job", path: "/bin/sh", argv: shell("echo > " + ran), stderr: os.Stderr}
	_, err = j.runUnder(lease, s, func() bool { return true })
	if code := report(os.Stderr, "redlock", err); code != signalCode(syscall.SIGINT) {
		t.Errorf("exit code %d, want that of SIGINT", code)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command was run")
	}
}
