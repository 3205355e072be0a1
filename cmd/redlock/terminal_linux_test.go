package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleShell is an interactive shell with job control: it runs its arguments as
// a job in the foreground, says when that has stopped, lets it go on, and ends as
// it does.
const roleShell = "shell"

func init() { roles[roleShell] = shellMain }

func shellMain(args []string) int {
	signal.Ignore(syscall.SIGTTOU) // to take the terminal from the job
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleRedlock)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	job := cmd.Process.Pid
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(job, &status, syscall.WUNTRACED, nil); err != nil {
			fmt.Println(err)
			return 1
		}
		if !status.Stopped() {
			return status.ExitStatus() // what was printed last can be lost when the terminal hangs up
		}
		fmt.Println("the job stopped")
		unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, syscall.Getpgrp())
		unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, job)
		syscall.Kill(-job, syscall.SIGCONT)
		fmt.Println("the job goes on")
	}
}

// terminal is a pseudo-terminal, with the keyboard's end for the test.
type terminal struct {
	t      *testing.T
	master *os.File
	lines  *bufio.Reader
}

// onTerminal runs args, the test binary's, in a role on a new terminal, leading
// its session.
func onTerminal(t *testing.T, role, socket string, args ...string) (*terminal, *exec.Cmd) {
	t.Helper()
	cmd := command(t, testBinary, args...)
	return startOnTerminal(t, cmd, role, socket), cmd
}

func startOnTerminal(t *testing.T, cmd *exec.Cmd, role, socket string) *terminal {
	t.Helper()
	master, slave := openTerminal(t)
	defer slave.Close()
	cmd.Env = append(os.Environ(), roleVariable+"="+role, socketOfTests+"="+socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &terminal{t, master, bufio.NewReader(master)}
}

func openTerminal(t *testing.T) (master, slave *os.File) {
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
	master.SetReadDeadline(time.Now().Add(patience))
	return master, slave
}

// withoutEcho leaves what is printed as it is, and what is typed unprinted.
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

func (tt *terminal) line() string {
	tt.t.Helper()
	line, err := tt.lines.ReadString('\n')
	if err != nil {
		tt.t.Fatalf("after %q on the terminal: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (tt *terminal) expect(want string) {
	tt.t.Helper()
	if got := tt.line(); got != want {
		tt.t.Errorf("the terminal shows %q, want %q", got, want)
	}
}

func (tt *terminal) typed(keys string) {
	tt.t.Helper()
	if _, err := tt.master.WriteString(keys); err != nil {
		tt.t.Fatal(err)
	}
}

func (tt *terminal) up() {
	tt.t.Helper()
	if line := tt.line(); !strings.HasPrefix(line, "up ") {
		tt.t.Fatalf("the puppet said %q, want up PID", line)
	}
}

// What the terminal sends to all comes once. The signal after it shows that there
// was no second: signals are passed on in order.
func TestTerminalSignalsComeOnce(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	tt, cmd := onTerminal(t, roleRedlock, f.socket, runOf(nil, puppet()...)...)
	tt.up()
	for range 10 { // two that come together are one, by luck
		for _, test := range []struct {
			name string
			send func()
		}{
			{"interrupt", func() { tt.typed("\x03") }},
			{"quit", func() { tt.typed("\x1c") }},
			{"stopped", func() { tt.typed("\x1a") }},
			{"continued", func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }}, // as a shell does
		} {
			test.send()
			tt.expect("got " + test.name)
			cmd.Process.Signal(syscall.SIGUSR1)
			tt.expect("got user defined signal 1")
		}
	}
	if err := unix.IoctlSetWinsize(int(tt.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
		t.Fatal(err)
	}
	tt.expect("got window changed")
	cmd.Process.Signal(syscall.SIGTERM)
	tt.expect("got terminated")
	tt.typed("exit 4\n")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("it ended with %v, want exit code 4", err)
	}
}

// So it is for those that a command that was ended has left behind.
func TestTerminalSignalsComeOnceToWhoIsLeft(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, puppet("user defined signal 2")...)
	tt, cmd := onTerminal(t, roleRedlock, f.socket, runOf(nil, command...)...)
	tt.up()
	expect := func(want string) {
		t.Helper()
		line := tt.line()
		for strings.Contains(line, "redlock: ") || line == "got continued" {
			line = tt.line()
		}
		if line != want {
			t.Errorf("the terminal shows %q, want %q", line, want)
		}
	}
	cmd.Process.Signal(syscall.SIGUSR1)
	expect("got terminated")
	for range 10 {
		tt.typed("\x03")
		expect("got interrupt")
		cmd.Process.Signal(syscall.SIGALRM)
		expect("got alarm clock")
	}
	cmd.Process.Signal(syscall.SIGUSR2)
	expect("got user defined signal 2")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGUSR1) {
		t.Errorf("it ended with %v, want that of SIGUSR1", err)
	}
}

// Ctrl-Z stops both, so that the shell has its terminal again, and fg lets both
// go on. So it is with a command that stops itself in its turn.
func TestJobControl(t *testing.T) {
	command := append([]string{testBinary}, runOf(nil, "sh", "-c", "echo up $$; read order; echo $order")...)
	for name, words := range map[string][]string{
		"direct":       command,
		"nested":       append([]string{testBinary}, runOf(nil, command...)...),
		"nested twice": append([]string{testBinary}, runOf(nil, append([]string{testBinary}, runOf(nil, command...)...)...)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopsAndGoesOn(t, words)
		})
	}
}

func stopsAndGoesOn(t *testing.T, command []string) {
	f := startFake(t, holding())
	tt, cmd := onTerminal(t, roleShell, f.socket, command...)
	tt.up()
	for range 3 {
		tt.typed("\x1a")
		tt.expect("the job stopped")
		tt.expect("the job goes on")
	}
	tt.typed("hello\n")
	tt.expect("hello")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the job ended with %v", err)
	}
}

// A command in a process group of its own, as timeout is, does not get what the terminal
// sends, but from redlock run.
func TestJobControlOfAnotherGroup(t *testing.T) {
	needPerl(t)
	t.Parallel()
	f := startFake(t, holding())
	const script = `$| = 1; setpgrp; for my $s ("INT", "QUIT", "CONT") { $SIG{$s} = sub { print "got $s\n" } } print "up\n"; sleep 9 while 1`
	command := append([]string{testBinary}, runOf(nil, "perl", "-e", script)...)
	tt, cmd := onTerminal(t, roleShell, f.socket, command...)
	tt.expect("up")
	tt.typed("\x03")
	tt.expect("got INT")
	tt.typed("\x1c")
	tt.expect("got QUIT")
	tt.typed("\x1a")
	tt.expect("the job stopped")
	if lines := []string{tt.line(), tt.line()}; !slices.Contains(lines, "the job goes on") || !slices.Contains(lines, "got CONT") {
		t.Errorf("the terminal shows %q, want that both go on", lines)
	}
	syscall.Kill(f.peer(), syscall.SIGTERM)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the job ended with %v, want that of SIGTERM", err)
	}
}

// So it is where the command has been ended, and those that it has left behind are
// waited for.
func TestJobControlOfWhoIsLeft(t *testing.T) {
	needPerl(t)
	t.Parallel()
	f := startFake(t, holding())
	script := "PERL_SIGNALS=unsafe perl -e '" + leaf + "' term; exit $?" // the handler runs at once
	command := append([]string{testBinary}, runOf(nil, "sh", "-c", script)...)
	tt, cmd := onTerminal(t, roleShell, f.socket, command...)
	tt.expect("up")
	syscall.Kill(f.peer(), syscall.SIGTERM)
	tt.expect("got TERM")
	for range 3 {
		tt.typed("\x1a")
		for line := tt.line(); line != "the job goes on"; line = tt.line() { // or why it runs yet
		}
	}
	tt.typed("end\n")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the job ended with %v, want that of SIGTERM", err)
	}
}

// A terminal that hangs up tells the session's leader only, which tells the command.
func TestHangUp(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	tt, cmd := onTerminal(t, roleRedlock, f.socket, runOf(nil, puppet("hangup")...)...)
	tt.up()
	tt.master.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// When the shell that leads the session ends with its terminal, the kernel tells all in
// the foreground: the command is not told a second time.
func TestHangUpComesOnce(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	said := filepath.Join(t.TempDir(), "said")
	run := runOf(nil, append([]string{"sh", "-c", `echo up 1; exec "$@" >"$0"`, said}, puppet("user defined signal 1")...)...)
	tt, cmd := onTerminal(t, roleShell, f.socket, append([]string{testBinary}, run...)...)
	tt.up()
	has := func(text string) func() bool {
		return func() bool { all, _ := os.ReadFile(said); return strings.Contains(string(all), text) }
	}
	await(t, "a command", has("up "))
	tt.master.Close()
	cmd.Wait()
	await(t, "SIGHUP", has("got hangup\n"))
	syscall.Kill(f.peer(), syscall.SIGUSR1)
	await(t, "SIGUSR1", has("got user defined signal 1\n"))
	if all, _ := os.ReadFile(said); strings.Count(string(all), "hangup") != 1 {
		t.Errorf("the command said %q, want one hangup", all)
	}
}

// In the background nothing comes from the terminal: what redlock run gets there, somebody
// has sent to it alone.
func TestSignalsInTheBackground(t *testing.T) {
	perl := needPerl(t)
	t.Parallel()
	f := startFake(t, holding())
	const background = `$pid = fork // die; if (!$pid) { setpgrp; open STDIN, "/dev/null"; exec @ARGV or die } waitpid($pid, 0); exit $? >> 8`
	cmd := command(t, perl, append([]string{"-e", background, testBinary}, runOf(nil, puppet("terminated")...)...)...)
	tt := startOnTerminal(t, cmd, roleRedlock, f.socket)
	tt.up()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGTERM} {
		syscall.Kill(f.peer(), sig)
		tt.expect("got " + sig.String())
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// Who leads the session (ssh -t) has no shell that would let it go on: it does not stop with
// the command. That signals are passed on shows it.
func TestStoppedWhileLeading(t *testing.T) {
	needPerl(t)
	t.Parallel()
	f := startFake(t, holding())
	const script = `$| = 1; setpgrp; print "up $$\n"; kill "TSTP", $$; sleep 9 while 1`
	tt, cmd := onTerminal(t, roleRedlock, f.socket, runOf(nil, "perl", "-e", script)...)
	pid, err := strconv.Atoi(strings.TrimPrefix(tt.line(), "up "))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a stopped command", func() bool { return isStopped(pid) })
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM} {
		cmd.Process.Signal(sig)
		await(t, "a signal that was passed on", func() bool { return hasPending(pid, sig) })
	}
	syscall.Kill(pid, syscall.SIGCONT)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() <= 128 {
		t.Errorf("it ended with %v, want that of a signal", err)
	}
}
