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

// process is a program that a test runs, with its lines of output as they come.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *output
	stderr *output
	exited chan struct{} // closed when it is gone and reaped
	code   int           // then: its exit code; -1 for a signal
}

// output is what a process has printed on one stream. However much that is, and whether or not
// the test looks at it, the process does not wait.
type output struct {
	grown chan struct{} // of capacity 1: there is another line, or the end

	mu    sync.Mutex // guards what follows
	lines []string
	taken int // how many of them the test took
	ended bool
}

// start runs a program until the test ends, in dir if it is not empty.
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
	go p.reap() // ends with the process, for which kill waits
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

// readLines ends when the last process that has the pipe closes it.
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
	default: // nobody has looked since
	}
}

// take returns the next line. If there is none yet, it is not there, and ended tells whether one
// can come.
func (o *output) take() (line string, there, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken == len(o.lines) {
		return "", false, o.ended
	}
	o.taken++
	return o.lines[o.taken-1], true, false
}

// next waits for the next line until giveUp. At the end of the stream there is none, in time.
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

// text is everything so far.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

func (p *process) reap() {
	_ = p.cmd.Wait() // the code tells
	p.code = p.cmd.ProcessState.ExitCode()
	close(p.exited)
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%v to %s: %v", sig, p.cmd, err)
	}
}

// kill sends SIGKILL, also to a process that is stopped, or gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// wait returns the exit code.
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

// next returns the next line of a stream; false at its end.
func (p *process) next(from *output) (string, bool) {
	p.t.Helper()
	return p.nextBefore(time.After(patience), from, "another line")
}

// nextBefore is next, until giveUp: then the test fails, as what has not come.
func (p *process) nextBefore(giveUp <-chan time.Time, from *output, what string) (string, bool) {
	p.t.Helper()
	line, more, inTime := from.next(giveUp)
	if !inTime {
		p.t.Fatalf("%s: %s has not come in time; it printed:\n%s\n%s", p.cmd, what, p.stdout.text(), p.stderr.text())
	}
	return line, more
}

// line is the next line on stdout.
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

// rest returns all that a process has printed, after it has ended.
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
