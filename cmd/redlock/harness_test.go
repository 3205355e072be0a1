package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen: it bounds a failing
// test, never a passing one.
const patience = 30 * time.Second

// testBinary is run in each role.
var testBinary = os.Args[0]

// process is one that a test has started.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File // read end
	lines  *bufio.Reader
	stderr *os.File
}

// start runs the test binary in a role, with the socket path.
func start(t *testing.T, role, socket string, args ...string) *process {
	t.Helper()
	return startCommand(t, command(t, testBinary, args...), role, socket)
}

// command is killed after the test's patience, so that waiting for it ends.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

func startCommand(t *testing.T, cmd *exec.Cmd, role, socket string) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd}
	cmd.Env = append(os.Environ(), roleVariable+"="+role, socketOfTests+"="+socket)
	cmd.WaitDelay = patience
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	if p.stderr, err = os.Create(filepath.Join(t.TempDir(), "stderr")); err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = p.stderr
	theirs := p.pipe()
	cmd.Stdout = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(p.end)
	return p
}

func (p *process) pipe() (theirs *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(patience))
	p.stdout, p.lines = r, bufio.NewReader(r)
	return w
}

// end kills a process that the test has not seen the end of.
func (p *process) end() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
	p.stdout.Close()
	p.stderr.Close()
}

// said is what the process has written to stderr until now.
func (p *process) said() string {
	p.t.Helper()
	text, err := os.ReadFile(p.stderr.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// awaitSaid waits until the process has written text to stderr.
func (p *process) awaitSaid(text string) {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !strings.Contains(p.said(), text) {
		select {
		case <-tick.C:
		case <-late:
			p.t.Fatalf("%v: stderr is %q, want %q in it", p.cmd.Args, p.said(), text)
		}
	}
}

// redlock runs the command to its end.
func redlock(t *testing.T, socket string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, roleRedlock, socket, args...)
	p.stdin.Close()
	stdout = p.rest()
	code = p.wait()
	return code, stdout, p.said()
}

// rest is all that the process, and those that it started, write until they end.
func (p *process) rest() string {
	p.t.Helper()
	all, err := io.ReadAll(p.lines)
	if err != nil {
		p.t.Fatalf("%v: stdout does not end: %v; so far %q, stderr %q", p.cmd.Args, err, all, p.said())
	}
	return string(all)
}

// wait is the exit code; -N if signal N ended it.
func (p *process) wait() int {
	p.t.Helper()
	err := p.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		p.t.Fatalf("%v: %v", p.cmd.Args, err)
	}
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return -int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends checks the exit code.
func (p *process) ends(want int) {
	p.t.Helper()
	if got := p.wait(); got != want {
		p.t.Errorf("%v: exit code %d, want %d; stderr %q", p.cmd.Args, got, want, p.said())
	}
}

// line is the next one of stdout.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%v: after %q: %v; stderr %q", p.cmd.Args, line, err, p.said())
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Errorf("%v: printed %q, want %q", p.cmd.Args, got, want)
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v: %v: %v", p.cmd.Args, sig, err)
	}
}

func (p *process) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// runPuppet runs a puppet by redlock run with flags, and waits until it is up.
func runPuppet(t *testing.T, socket string, flags ...string) (p *process, pid int) {
	t.Helper()
	p = start(t, roleRedlock, socket, runOf(flags, puppet()...)...)
	return p, p.up()
}

// up waits for the puppet's first line, and returns its pid.
func (p *process) up() int {
	p.t.Helper()
	line := p.line()
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "up "))
	if err != nil {
		p.t.Fatalf("the puppet said %q, want up PID", line)
	}
	return pid
}

// runOf is "run FLAGS job -- COMMAND".
func runOf(flags []string, command ...string) []string {
	return append(append(append([]string{"run"}, flags...), "job", "--"), command...)
}

// puppet is the command line of a puppet.
func puppet(args ...string) []string {
	return append([]string{"env", roleVariable + "=" + rolePuppet, testBinary}, args...)
}

// daemonPlaces bounds the daemons at a time: with their nodes they want a machine
// that does not stand still.
var daemonPlaces = make(chan struct{}, 2)

// startDaemon runs a daemon with embedded nodes, as a process of its own, which is there
// as long as the test lasts. It waits for its place.
func startDaemon(t *testing.T) (p *process, socket string) {
	t.Helper()
	daemonPlaces <- struct{}{}
	t.Cleanup(func() { <-daemonPlaces })
	socket = newSocket(t)
	p = startCommand(t, exec.Command(testBinary), roleDaemon, socket)
	p.expect("ready")
	return p, socket
}

// newSocket is a path that is short enough for a socket.
func newSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
