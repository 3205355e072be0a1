package cmdtest

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

	"github.com/redlockd/redlockd/client"
)

// ExpectNothingHeld waits until no lock is held or awaited. LIST may show a cancelled request for a
// moment, because another connection sends LIST.
func ExpectNothingHeld(t *testing.T, socket string) {
	t.Helper()
	WaitFor(t, Dial(t, socket), "an empty LIST", func(entries []client.Entry) bool { return len(entries) == 0 })
}

// Timeout is how long a test waits for an event. Only a failing test takes that long.
const Timeout = 2 * time.Minute

// TestBinary is the program that runs in each role: this one or, with the race detector, the same
// without it.
var TestBinary = os.Args[0]

// Process is a process that a test has started.
type Process struct {
	t      *testing.T
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Stdout *os.File // read end
	lines  *bufio.Reader
	stderr *os.File
}

// Start runs the test binary in a role, with the socket path in its environment.
func Start(t *testing.T, role, socket string, args ...string) *Process {
	t.Helper()
	return StartCommand(t, Command(t, TestBinary, args...), role, socket)
}

// Command returns a command that is killed after Timeout.
func Command(t *testing.T, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

func StartCommand(t *testing.T, cmd *exec.Cmd, role, socket string) *Process {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts processes: run it without -short")
	}
	p := &Process{t: t, Cmd: cmd}
	cmd.Env = append(os.Environ(), RoleVariable+"="+role, SocketVariable+"="+socket)
	cmd.WaitDelay = Timeout
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin = stdin
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

func (p *Process) pipe() (theirs *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(Timeout))
	p.Stdout, p.lines = r, bufio.NewReader(r)
	return w
}

// end kills a process if the test has not seen its end.
func (p *Process) end() {
	if p.Cmd.ProcessState == nil {
		p.Cmd.Process.Kill()
		p.Cmd.Wait()
	}
	p.Stdout.Close()
	p.stderr.Close()
}

// Stderr returns what the process has written to stderr so far.
func (p *Process) Stderr() string {
	p.t.Helper()
	text, err := os.ReadFile(p.stderr.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// AwaitStderr waits until the process has written text to stderr.
func (p *Process) AwaitStderr(text string) {
	p.t.Helper()
	if !poll(func() bool { return strings.Contains(p.Stderr(), text) }) {
		p.t.Fatalf("%v: stderr is %q, want %q in it", p.Cmd.Args, p.Stderr(), text)
	}
}

// Run runs redlock to its end.
func Run(t *testing.T, socket string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := Start(t, RoleRedlock, socket, args...)
	p.Stdin.Close()
	stdout = p.ReadAll()
	code = p.Wait()
	return code, stdout, p.Stderr()
}

// ReadAll reads what the process and its children write until they end.
func (p *Process) ReadAll() string {
	p.t.Helper()
	all, err := io.ReadAll(p.lines)
	if err != nil {
		p.t.Fatalf("%v: stdout does not end: %v; so far %q, stderr %q", p.Cmd.Args, err, all, p.Stderr())
	}
	return string(all)
}

// Wait returns the exit code, or -N if signal N ended the process.
func (p *Process) Wait() int {
	p.t.Helper()
	err := p.Cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		p.t.Fatalf("%v: %v", p.Cmd.Args, err)
	}
	if status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return -int(status.Signal())
	}
	return p.Cmd.ProcessState.ExitCode()
}

// ExpectExit checks the exit code.
func (p *Process) ExpectExit(want int) {
	p.t.Helper()
	if got := p.Wait(); got != want {
		p.t.Errorf("%v: exit code %d, want %d; stderr %q", p.Cmd.Args, got, want, p.Stderr())
	}
}

// ReadLine returns the next line of stdout.
func (p *Process) ReadLine() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%v: after %q: %v; stderr %q", p.Cmd.Args, line, err, p.Stderr())
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *Process) ExpectLine(want string) {
	p.t.Helper()
	if got := p.ReadLine(); got != want {
		p.t.Errorf("%v: printed %q, want %q", p.Cmd.Args, got, want)
	}
}

func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v: %v: %v", p.Cmd.Args, sig, err)
	}
}

func (p *Process) WriteLine(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.Stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// RunPuppet runs a puppet under redlock run with flags, and waits until it is up.
func RunPuppet(t *testing.T, socket string, flags ...string) (p *Process, pid int) {
	t.Helper()
	p = Start(t, RoleRedlock, socket, RunArgs(flags, Puppet()...)...)
	return p, p.AwaitPuppet()
}

// AwaitPuppet waits for the puppet's first line, and returns its pid.
func (p *Process) AwaitPuppet() int {
	p.t.Helper()
	line := p.ReadLine()
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "up "))
	if err != nil {
		p.t.Fatalf("the puppet said %q, want up PID", line)
	}
	return pid
}

// RunArgs returns the arguments run FLAGS job -- COMMAND.
func RunArgs(flags []string, command ...string) []string {
	return append(append(append([]string{"run"}, flags...), "job", "--"), command...)
}

// Puppet returns the command line of a puppet.
func Puppet(args ...string) []string {
	return append([]string{"env", RoleVariable + "=" + rolePuppet, TestBinary}, args...)
}

// daemonSlots bounds the daemons that run at a time, because their nodes time out on a busy
// machine.
var daemonSlots = make(chan struct{}, 4)

// StartDaemon runs a daemon with embedded nodes as a process, until the end of the test.
func StartDaemon(t *testing.T) (p *Process, socket string) {
	t.Helper()
	daemonSlots <- struct{}{}
	t.Cleanup(func() { <-daemonSlots })
	socket = NewSocket(t)
	p = StartCommand(t, exec.Command(TestBinary), roleDaemon, socket)
	p.ExpectLine("ready")
	return p, socket
}

// NewSocket returns a path that is short enough for a socket.
func NewSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// ExpectTerminated waits until the puppet has got SIGTERM. The SIGCONT that follows may overtake
// it.
func (p *Process) ExpectTerminated() {
	p.t.Helper()
	line := p.ReadLine()
	if line == "got continued" {
		line = p.ReadLine()
	}
	if line != "got terminated" {
		p.t.Errorf("the puppet said %q, want got terminated", line)
	}
}

// PipeForTest returns a pipe whose read end times out.
func PipeForTest(t *testing.T) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(Timeout))
	t.Cleanup(func() { r.Close() })
	return r, w
}

func WriteScript(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text+"\n"), mode); err != nil {
		t.Fatal(err)
	}
}

// CheckExit compares the exit code, and checks that stderr contains a text; if the text is empty,
// stderr must be empty.
func CheckExit(t *testing.T, code, wantCode int, stderr, wantStderr string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d; stderr %q", code, wantCode, stderr)
	}
	if wantStderr == "" && stderr != "" || !strings.Contains(stderr, wantStderr) {
		t.Errorf("stderr %q, want %q in it", stderr, wantStderr)
	}
}

var Shells = []string{"sh", "dash", "bash"}

// Stop stops a process with SIGSTOP, so that it hangs.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.t.Fatalf("%v does not stop: %v %v", p.Cmd.Args, status, err)
	}
}

// Detach gives a command a session of its own, without the terminal of the tests.
func Detach(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// Writes is a writer that calls a function when "obtained" is written.
type Writes func()

func (w Writes) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "obtained") {
		w()
	}
	return len(text), nil
}

func Dial(t *testing.T, socket string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// WaitFor repeats LIST until ok returns true.
func WaitFor(t *testing.T, c *client.Client, what string, ok func([]client.Entry) bool) {
	t.Helper()
	var entries []client.Entry
	if !poll(func() (done bool) {
		var err error
		if entries, err = c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		return ok(entries)
	}) {
		t.Fatalf("there never was %s; at the end LIST has %+v", what, entries)
	}
}

// poll repeats done until it returns true, for at most Timeout. It reports whether it did.
func poll(done func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Timeout); !done(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Await waits until condition returns true.
func Await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !poll(condition) {
		t.Fatalf("there never was %s", what)
	}
}

// FillPipe writes until the pipe is full.
func FillPipe(t *testing.T, w *os.File) {
	t.Helper()
	w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		if _, err := w.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}

// Writing is a writer that calls a function for each write.
type Writing func() error

func (w Writing) Write(text []byte) (int, error) { return len(text), w() }
