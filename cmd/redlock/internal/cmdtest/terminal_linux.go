package cmdtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo-terminal. The test has the master side.
type Terminal struct {
	t      *testing.T
	Master *os.File
	lines  *bufio.Reader
}

// OnTerminal runs the test binary in a role as the leader of a session on a new terminal.
func OnTerminal(t *testing.T, role, socket string, args ...string) (*Terminal, *exec.Cmd) {
	t.Helper()
	cmd := Command(t, TestBinary, args...)
	return StartOnTerminal(t, cmd, role, socket), cmd
}

func StartOnTerminal(t *testing.T, cmd *exec.Cmd, role, socket string) *Terminal {
	t.Helper()
	master, slave := OpenTerminal(t)
	defer slave.Close()
	cmd.Env = append(os.Environ(), RoleVariable+"="+role, SocketVariable+"="+socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &Terminal{t, master, bufio.NewReader(master)}
}

func OpenTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	withoutEcho(t, slave)
	master.SetReadDeadline(time.Now().Add(Timeout))
	return master, slave
}

// withoutEcho stops the terminal from echoing input and from changing output.
func withoutEcho(t *testing.T, tty *os.File) {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	settings.Lflag &^= unix.ECHO
	settings.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, settings); err != nil {
		t.Fatal(err)
	}
}

func (tt *Terminal) ReadLine() string {
	tt.t.Helper()
	line, err := tt.lines.ReadString('\n')
	if err != nil {
		tt.t.Fatalf("after %q on the terminal: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (tt *Terminal) ExpectLine(want string) {
	tt.t.Helper()
	if got := tt.ReadLine(); got != want {
		tt.t.Errorf("the terminal shows %q, want %q", got, want)
	}
}

func (tt *Terminal) Type(keys string) {
	tt.t.Helper()
	if _, err := tt.Master.WriteString(keys); err != nil {
		tt.t.Fatal(err)
	}
}

func (tt *Terminal) AwaitPuppet() {
	tt.t.Helper()
	if line := tt.ReadLine(); !strings.HasPrefix(line, "up ") {
		tt.t.Fatalf("the puppet said %q, want up PID", line)
	}
}

// ReadUntil reads from the terminal to the end of text.
func (tt *Terminal) ReadUntil(text string) string {
	tt.t.Helper()
	var all strings.Builder
	for !strings.HasSuffix(all.String(), text) {
		b, err := tt.lines.ReadByte()
		if err != nil {
			tt.t.Fatalf("after %q on the terminal: %v, want %q", all.String(), err, text)
		}
		all.WriteByte(b)
	}
	return all.String()
}
