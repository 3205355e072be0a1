package conformance

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// program is a process that uses the client. It reads commands and prints what it sees.
type program struct {
	command *exec.Cmd
	in      io.WriteCloser
	lines   chan string // closed when it has closed its output
	errors  *lockedBuffer
	reader  sync.WaitGroup
}

// startProgram starts a process. The caller must call kill.
func startProgram(t *testing.T, command []string) *program {
	t.Helper()
	p := &program{command: exec.Command(command[0], command[1:]...), lines: make(chan string, 10_000), errors: &lockedBuffer{}}
	p.command.Stderr = p.errors
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.reader.Go(func() {
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	})
	return p
}

// kill ends the process. It may have ended before.
func (p *program) kill() {
	p.in.Close()
	p.command.Process.Kill()
	p.reader.Wait()
	p.command.Wait()
}

func (p *program) tell(on *player, line string) {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		on.fatalf("the program reads no more: %v", err)
	}
}

// stop stops the program as Ctrl-Z does, and waits until it has stopped.
func (p *program) stop(on *player) {
	p.signal(on, syscall.SIGSTOP)
	if err := unix.Waitid(unix.P_PID, p.command.Process.Pid, nil, unix.WSTOPPED, nil); err != nil {
		on.fatalf("waitid: %v", err)
	}
}

func (p *program) signal(on *player, signal syscall.Signal) {
	if err := p.command.Process.Signal(signal); err != nil {
		on.fatalf("%v to the program: %v", signal, err)
	}
}

// hear returns the next line that the program prints. Meanwhile, it has on answer requests.
func (p *program) hear(on *player) string {
	var requests chan string
	if len(on.always) > 0 {
		requests = on.connection().requests
	}
	for giveUp := time.After(patience); ; {
		select {
		case line, ok := <-p.lines:
			if !ok {
				on.fatalf("the program ended")
			}
			return line
		case line, ok := <-requests:
			if !ok {
				requests = nil // the end of the connection
			} else if !on.isHandled(line) {
				on.fatalf("the daemon reads %q, want no request", line)
			}
		case <-giveUp:
			on.fatalf("the program prints nothing within %v", patience)
		}
	}
}

// exit closes the program's input, at which it must end.
func (p *program) exit(t *testing.T) {
	p.in.Close()
	select {
	case line, more := <-p.lines:
		if more {
			t.Errorf("at the end the program prints %q", line)
		}
	case <-time.After(patience):
		t.Errorf("the program does not end within %v after the end of its input", patience)
		return
	}
	p.reader.Wait()
	if err := p.command.Wait(); err != nil {
		t.Errorf("the program ends with %v%s", err, p.said())
	}
}

// said returns what the program has printed as errors.
func (p *program) said() string {
	if text := p.errors.String(); text != "" {
		return "\nits errors:\n" + strings.TrimSuffix(text, "\n")
	}
	return ""
}

// lockedBuffer is a buffer that a process may write to at any time.
type lockedBuffer struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
