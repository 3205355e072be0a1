package main

import (
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

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// roleShell is an interactive shell with job control. It runs its arguments as a foreground job,
// and prints a line when the job has stopped. It then continues the job, and exits with the job's
// exit code.
const roleShell = "shell"

func init() { cmdtest.Roles[roleShell] = shellMain }

func shellMain(args []string) int {
	signal.Ignore(syscall.SIGTTOU) // so that it can take the terminal from the job
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), cmdtest.RoleVariable+"="+cmdtest.RoleRedlock)
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
			return status.ExitStatus() // the last output can be lost when the terminal hangs up
		}
		fmt.Println("the job stopped")
		unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, syscall.Getpgrp())
		unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, job)
		syscall.Kill(-job, syscall.SIGCONT)
		fmt.Println("the job goes on")
	}
}

// If the terminal sends a signal to the whole group, the command gets it only once. The next signal
// shows that there was no second one, because redlock run forwards signals in order.
func TestTerminalSignalsComeOnce(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, cmdtest.Puppet()...)...)
	tt.AwaitPuppet()
	for range 10 { // two signals that arrive together can merge into one by chance
		for _, test := range []struct {
			name string
			send func()
		}{
			{"interrupt", func() { tt.Type("\x03") }},
			{"quit", func() { tt.Type("\x1c") }},
			{"stopped", func() { tt.Type("\x1a") }},
			{"continued", func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }}, // as a shell does
		} {
			test.send()
			tt.ExpectLine("got " + test.name)
			cmd.Process.Signal(syscall.SIGUSR1)
			tt.ExpectLine("got user defined signal 1")
		}
	}
	if err := unix.IoctlSetWinsize(int(tt.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
		t.Fatal(err)
	}
	tt.ExpectLine("got window changed")
	cmd.Process.Signal(syscall.SIGTERM)
	tt.ExpectLine("got terminated")
	tt.Type("exit 4\n")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("it ended with %v, want exit code 4", err)
	}
}

// Processes that an ended command left behind also get such a signal only once.
func TestTerminalSignalsReachLeftBehindOnce(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	command := append([]string{"sh", "-c", `"$@" & wait`, "sh"}, cmdtest.Puppet("user defined signal 2")...)
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, command...)...)
	tt.AwaitPuppet()
	expect := func(want string) {
		t.Helper()
		line := tt.ReadLine()
		for strings.Contains(line, "redlock: ") || line == "got continued" {
			line = tt.ReadLine()
		}
		if line != want {
			t.Errorf("the terminal shows %q, want %q", line, want)
		}
	}
	cmd.Process.Signal(syscall.SIGUSR1)
	expect("got terminated")
	for range 10 {
		tt.Type("\x03")
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

// Ctrl-Z stops redlock run and the command, so the shell gets its terminal back. fg continues both.
// The same happens if the command stops itself.
func TestJobControl(t *testing.T) {
	command := append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, "sh", "-c", "echo up $$; read order; echo $order")...)
	for name, words := range map[string][]string{
		"direct":       command,
		"nested":       append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, command...)...),
		"nested twice": append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, command...)...)...)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopsAndContinues(t, words)
		})
	}
}

func stopsAndContinues(t *testing.T, command []string) {
	f := cmdtest.StartFake(t, cmdtest.Granting())
	tt, cmd := cmdtest.OnTerminal(t, roleShell, f.Socket, command...)
	tt.AwaitPuppet()
	for range 3 {
		tt.Type("\x1a")
		tt.ExpectLine("the job stopped")
		tt.ExpectLine("the job goes on")
	}
	tt.Type("hello\n")
	tt.ExpectLine("hello")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the job ended with %v", err)
	}
}

// A command in its own process group, such as timeout, gets no signals from the terminal, so
// redlock run forwards them.
func TestJobControlOfAnotherGroup(t *testing.T) {
	needPerl(t)
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	const script = `$| = 1; setpgrp; for my $s ("INT", "QUIT", "CONT") { $SIG{$s} = sub { print "got $s\n" } } print "up\n"; sleep 9 while 1`
	command := append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, "perl", "-e", script)...)
	tt, cmd := cmdtest.OnTerminal(t, roleShell, f.Socket, command...)
	tt.ExpectLine("up")
	tt.Type("\x03")
	tt.ExpectLine("got INT")
	tt.Type("\x1c")
	tt.ExpectLine("got QUIT")
	tt.Type("\x1a")
	tt.ExpectLine("the job stopped")
	if lines := []string{tt.ReadLine(), tt.ReadLine()}; !slices.Contains(lines, "the job goes on") || !slices.Contains(lines, "got CONT") {
		t.Errorf("the terminal shows %q, want that both go on", lines)
	}
	syscall.Kill(f.Peer(), syscall.SIGTERM)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the job ended with %v, want that of SIGTERM", err)
	}
}

// Job control also works while redlock run waits for the processes that an ended command left
// behind.
func TestJobControlOfLeftBehind(t *testing.T) {
	needPerl(t)
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	script := "PERL_SIGNALS=unsafe perl -e '" + leaf + "' term; exit $?" // the handler runs at once
	command := append([]string{cmdtest.TestBinary}, cmdtest.RunArgs(nil, "sh", "-c", script)...)
	tt, cmd := cmdtest.OnTerminal(t, roleShell, f.Socket, command...)
	tt.ExpectLine("up")
	syscall.Kill(f.Peer(), syscall.SIGTERM)
	tt.ExpectLine("got TERM")
	for range 3 {
		tt.Type("\x1a")
		for line := tt.ReadLine(); line != "the job goes on"; line = tt.ReadLine() { // or the line that says why redlock run still runs
		}
	}
	tt.Type("end\n")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the job ended with %v, want that of SIGTERM", err)
	}
}

// When a terminal hangs up, only the session leader gets SIGHUP. Here that is redlock run, which
// forwards it to the command.
func TestHangUp(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, cmdtest.Puppet("hangup")...)...)
	tt.AwaitPuppet()
	tt.Master.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// When the shell that leads the session ends with its terminal, the kernel sends SIGHUP to
// all processes in the foreground. redlock run does not send it to the command again.
func TestHangUpComesOnce(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	said := filepath.Join(t.TempDir(), "said")
	run := cmdtest.RunArgs(nil, append([]string{"sh", "-c", `echo up 1; exec "$@" >"$0"`, said}, cmdtest.Puppet("user defined signal 1")...)...)
	tt, cmd := cmdtest.OnTerminal(t, roleShell, f.Socket, append([]string{cmdtest.TestBinary}, run...)...)
	tt.AwaitPuppet()
	has := func(text string) func() bool {
		return func() bool { all, _ := os.ReadFile(said); return strings.Contains(string(all), text) }
	}
	cmdtest.Await(t, "a command", has("up "))
	tt.Master.Close()
	cmd.Wait()
	cmdtest.Await(t, "SIGHUP", has("got hangup\n"))
	syscall.Kill(f.Peer(), syscall.SIGUSR1)
	cmdtest.Await(t, "SIGUSR1", has("got user defined signal 1\n"))
	if all, _ := os.ReadFile(said); strings.Count(string(all), "hangup") != 1 {
		t.Errorf("the command said %q, want one hangup", all)
	}
}

// The terminal sends no signals to a background job. So a signal that redlock run gets there was
// sent to redlock run alone, and it forwards the signal.
func TestSignalsInTheBackground(t *testing.T) {
	perl := needPerl(t)
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	const background = `$pid = fork // die; if (!$pid) { setpgrp; open STDIN, "/dev/null"; exec @ARGV or die } waitpid($pid, 0); exit $? >> 8`
	cmd := cmdtest.Command(t, perl, append([]string{"-e", background, cmdtest.TestBinary}, cmdtest.RunArgs(nil, cmdtest.Puppet("terminated")...)...)...)
	tt := cmdtest.StartOnTerminal(t, cmd, cmdtest.RoleRedlock, f.Socket)
	tt.AwaitPuppet()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGTERM} {
		syscall.Kill(f.Peer(), sig)
		tt.ExpectLine("got " + sig.String())
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", err)
	}
}

// If redlock run leads the session (ssh -t), no shell could continue it, so it does not stop with
// the command. The test sees that redlock run still forwards signals.
func TestStoppedWhileLeading(t *testing.T) {
	needPerl(t)
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	const script = `$| = 1; setpgrp; print "up $$\n"; kill "TSTP", $$; sleep 9 while 1`
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "perl", "-e", script)...)
	pid, err := strconv.Atoi(strings.TrimPrefix(tt.ReadLine(), "up "))
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.Await(t, "a stopped command", func() bool { return cmdtest.IsStopped(pid) })
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM} {
		cmd.Process.Signal(sig)
		cmdtest.Await(t, "a signal that was passed on", func() bool { return hasPending(pid, sig) })
	}
	syscall.Kill(pid, syscall.SIGCONT)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() <= 128 {
		t.Errorf("it ended with %v, want that of a signal", err)
	}
}
