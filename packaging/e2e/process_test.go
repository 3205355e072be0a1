//go:build linux

package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that a test runs. Its output is read line by line.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *output
	stderr *output
	exited chan struct{} // closed when it has ended and is reaped
	code   int           // valid after exited: its exit code, or -1 for a signal
}

// output has the lines that a process has printed on one stream. The process never waits for the
// test to read them.
type output struct {
	grown chan struct{} // room for one: another line has come, or the end

	mu    sync.Mutex // guards the fields below
	lines []string
	taken int // number of lines that the test took
	ended bool
}

// start runs a program in dir, if that is not empty, until the test ends.
func start(t *testing.T, dir string, argv ...string) *process {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	// The kernel kills the program if the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return startCommand(t, cmd)
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	ours, theirs := pipes(t), pipes(t)
	cmd.Stdout, cmd.Stderr = ours.w, theirs.w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ours.w.Close()
	theirs.w.Close()
	p.stdout, p.stderr = readLines(ours.r), readLines(theirs.r)
	go p.reap() // ends with the process; kill waits for it
	t.Cleanup(p.kill)
	return p
}

type pipe struct{ r, w *os.File }

func pipes(t *testing.T) pipe {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return pipe{r, w}
}

// readLines reads lines until the last process that has the pipe closes it.
func readLines(from *os.File) *output {
	o := &output{grown: make(chan struct{}, 1)}
	go func() {
		defer from.Close()
		for scanner := bufio.NewScanner(from); scanner.Scan(); {
			o.grow(func() { o.lines = append(o.lines, scanner.Text()) })
		}
		o.grow(func() { o.ended = true })
	}()
	return o
}

func (o *output) grow(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
	select {
	case o.grown <- struct{}{}:
	default: // the last event was not read yet
	}
}

// take returns the next line if there is one. ended says that no more lines can come.
func (o *output) take() (line string, there, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken == len(o.lines) {
		return "", false, o.ended
	}
	o.taken++
	return o.lines[o.taken-1], true, false
}

// next waits for the next line until giveUp. more is false at the end of the stream.
func (o *output) next(giveUp <-chan time.Time) (line string, more, inTime bool) {
	for {
		line, there, ended := o.take()
		if there || ended {
			return line, there, true
		}
		select {
		case <-o.grown:
		case <-giveUp:
			return "", false, false
		}
	}
}

// text returns all lines so far.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

func (p *process) reap() {
	_ = p.cmd.Wait() // ExitCode has the result
	p.code = p.cmd.ProcessState.ExitCode()
	close(p.exited)
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v to %s: %v", sig, p.cmd, err)
	}
}

// kill sends SIGKILL. The process may be stopped, or may have ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.code
	case <-time.After(patience):
		p.t.Fatalf("%s still runs after %v; it printed:\n%s\n%s", p.cmd, patience, p.stdout.text(), p.stderr.text())
		return -1
	}
}

// next returns the next line of a stream, or false at its end.
func (p *process) next(from *output) (string, bool) {
	p.t.Helper()
	return p.nextBefore(time.After(patience), from, "another line")
}

// nextBefore is next until giveUp; then the test fails, and what describes the missing line.
func (p *process) nextBefore(giveUp <-chan time.Time, from *output, what string) (string, bool) {
	p.t.Helper()
	line, more, inTime := from.next(giveUp)
	if !inTime {
		p.t.Fatalf("%s: %s has not come in time; it printed:\n%s\n%s", p.cmd, what, p.stdout.text(), p.stderr.text())
	}
	return line, more
}

// line returns the next line of stdout.
func (p *process) line() string {
	p.t.Helper()
	line, more := p.next(p.stdout)
	if !more {
		p.t.Fatalf("%s ended, another line was expected, after:\n%s\n%s", p.cmd, p.stdout.text(), p.stderr.text())
	}
	return line
}

// send writes a line to stdin.
func (p *process) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("%s takes no input: %v; it printed:\n%s\n%s", p.cmd, err, p.stdout.text(), p.stderr.text())
	}
}

// rest waits for the end of a process and returns everything that it has printed.
func (p *process) rest() (stdout, stderr string) {
	p.t.Helper()
	giveUp := time.After(2 * patience)
	for _, o := range []*output{p.stdout, p.stderr} {
		for more := true; more; {
			_, more = p.nextBefore(giveUp, o, "the end of its output")
		}
	}
	return p.stdout.text(), p.stderr.text()
}
