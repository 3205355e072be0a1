package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// needPerl returns the path of perl. Tests use perl for processes that are faster than a shell, or
// that need more system calls.
func needPerl(t *testing.T) (path string) {
	t.Helper()
	path, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("needs perl: apt-get install perl-base")
	}
	return path
}

// TestMatrix sends each signal in each phase of redlock run with each kind of command. It starts
// the command directly or with -c, on a terminal or without one. It checks the exit code, and that
// no process is left. With REDLOCKD_LONG=1 each case runs in all four ways. Otherwise it runs in
// one way, and each signal is tested in each way.
func TestMatrix(t *testing.T) { // not parallel: it keeps the machine busy
	needPerl(t)
	for nth, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH,
	} {
		for at, phase := range []phase{whileWaiting, whileRunning, whileStopping} {
			for which, kind := range []kind{ignoresTerm, hasGrandchild, exitsNow} {
				for _, way := range ways(nth + at + which) {
					c := &trial{sig: sig, phase: phase, kind: kind, shell: way&1 != 0, onTerminal: way&2 != 0}
					t.Run(c.String(), func(t *testing.T) {
						t.Parallel()
						c.run(t)
					})
				}
			}
		}
	}
}

// ways returns in which of the four ways a trial starts: all of them, or only the nth.
func ways(nth int) []int {
	if effort.IsLong() {
		return []int{0, 1, 2, 3}
	}
	return []int{nth % 4}
}

// trial is a cell of the matrix.
type trial struct {
	sig               syscall.Signal
	phase             phase
	kind              kind
	shell, onTerminal bool

	t     *testing.T
	fake  *cmdtest.Fake
	lines *bufio.Reader // stdout and stderr
	keys  io.Writer     // stdin
	tty   *os.File      // nil: none
	cmd   *exec.Cmd     // redlock run; on a terminal, a shell with it
	alive *os.File      // reads EOF once no process is left
	said  strings.Builder
}

type phase string

const (
	whileWaiting  phase = "waiting"
	whileRunning  phase = "running"
	whileStopping phase = "being stopped"
)

type kind string

const (
	ignoresTerm   kind = "ignores TERM"
	hasGrandchild kind = "has a grandchild"
	exitsNow      kind = "exits now"
)

func (c *trial) String() string {
	words := []string{unix.SignalName(c.sig), string(c.phase), string(c.kind), "direct", "no terminal"}
	if c.shell {
		words[3] = "shell"
	}
	if c.onTerminal {
		words[4] = "terminal"
	}
	return strings.Join(words, ", ")
}

func (c *trial) run(t *testing.T) {
	c.t = t
	c.start()
	c.reach()
	c.act()
	c.drain()
	c.check()
}

// leaf is a process that ends with code 5 once stdin has input. With the argument term, it
// prints that it got SIGTERM and goes on.
const leaf = `$| = 1; $SIG{TERM} = sub { syswrite STDOUT, "got TERM\n" } if shift eq "term"; print "up\n"; while (1) { exit 5 if defined sysread(STDIN, $_, 9) }`

// fork is a process that runs a leaf and ends on SIGTERM.
const fork = `my $pid = fork // die; if (!$pid) { exec @ARGV or die } waitpid($pid, 0); exit $? >> 8`

// command returns the command that runs under the lock.
func (c *trial) command() []string {
	argv := []string{"perl", "-e", leaf, "default"}
	if c.kind == ignoresTerm || c.phase == whileStopping {
		argv[3] = "term"
	}
	if c.kind == hasGrandchild {
		argv = append([]string{"perl", "-e", fork}, argv...)
	}
	if !c.shell {
		return append([]string{"run", "job", "--"}, argv...)
	}
	script := ""
	for _, word := range argv {
		script += "'" + word + "' "
	}
	return []string{"run", "-c", script + "; exit $?", "job"}
}

// start starts redlock run, or a shell with it on a terminal.
func (c *trial) start() {
	a := cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")}
	switch c.phase {
	case whileWaiting:
		delete(a, ipc.VerbLock)
	case whileStopping:
		a[ipc.VerbLock] = cmdtest.GrantFor(time.Second) // SIGKILL ends it if nothing else does
	}
	c.fake = cmdtest.StartFake(c.t, a)
	role, args := cmdtest.RoleRedlock, c.command()
	if c.onTerminal {
		role, args = roleShell, append([]string{cmdtest.TestBinary}, args...)
	}
	c.cmd = cmdtest.Command(c.t, cmdtest.TestBinary, args...)
	c.cmd.Env = append(os.Environ(), cmdtest.RoleVariable+"="+role, cmdtest.SocketVariable+"="+c.fake.Socket,
		"PERL_SIGNALS=unsafe") // perl then runs handlers at once, also just before a read
	closeTheirs := c.connect()
	var theirs *os.File
	c.alive, theirs = cmdtest.PipeForTest(c.t)
	c.cmd.ExtraFiles = []*os.File{theirs}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	theirs.Close()
	closeTheirs()
	c.t.Cleanup(c.end)
}

// connect makes stdin, stdout and stderr.
func (c *trial) connect() (closeTheirs func()) {
	if c.onTerminal {
		master, slave := cmdtest.OpenTerminal(c.t)
		c.tty, c.keys, c.lines = master, master, bufio.NewReader(master)
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
		return func() { slave.Close() }
	}
	cmdtest.Detach(c.cmd)
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	r, w := cmdtest.PipeForTest(c.t)
	c.keys, c.lines = stdin, bufio.NewReader(r)
	c.cmd.Stdout, c.cmd.Stderr = w, w
	return func() { w.Close() }
}

// end kills all processes if the cell has failed.
func (c *trial) end() {
	if c.cmd.ProcessState == nil {
		syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		c.cmd.Wait()
	}
}

// reach returns when redlock run is in the cell's phase.
func (c *trial) reach() {
	if c.phase == whileWaiting {
		c.fake.ExpectRequest(ipc.VerbLock)
		return
	}
	c.until("up")
	if c.phase == whileStopping {
		c.fake.Broadcast("LOST lock=job lease=secret reason=quorum")
		c.until("got TERM")
	}
}

// act sends the signal. If the signal ends nothing, act ends the command.
func (c *trial) act() {
	if c.kind == exitsNow && c.tty == nil {
		c.order() // races with the signal
	}
	c.send()
	if !c.deadly() {
		if c.continuedByShell() {
			c.until("the job goes on") // the key may drop what is printed meanwhile
		} else {
			c.signal(syscall.SIGCONT)
		}
		if c.phase == whileWaiting || c.phase == whileRunning && c.kind != exitsNow {
			c.signal(syscall.SIGTERM)
		}
	}
	if c.kind == exitsNow && c.tty != nil || c.shellWaits() {
		c.order() // only now, because some keys drop earlier input
	}
}

// continuedByShell reports whether a shell continues the job. After Ctrl-Z, the shell sees that the
// job has stopped, and continues all of it. If SIGCONT reached redlock run alone before that, the
// shell would see no stopped job.
func (c *trial) continuedByShell() bool {
	return c.sig == syscall.SIGTSTP && c.tty != nil && c.phase == whileRunning
}

// shellWaits reports whether a shell delays the signal. If a shell alone gets SIGINT, it acts only
// when the process that it waits for has ended. Some shells do not act even then.
func (c *trial) shellWaits() bool {
	return c.sig == syscall.SIGINT && c.shell && c.tty == nil && c.phase == whileRunning
}

func (c *trial) deadly() bool {
	return !slices.Contains([]syscall.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH}, c.sig)
}

// keyOf maps a signal to the key of a terminal that sends it.
var keyOf = map[syscall.Signal]string{syscall.SIGINT: "\x03", syscall.SIGQUIT: "\x1c", syscall.SIGTSTP: "\x1a"}

// send sends the cell's signal as it occurs in practice: the terminal sends it, if it can.
func (c *trial) send() {
	switch key := keyOf[c.sig]; {
	case c.tty == nil || c.sig != syscall.SIGWINCH && key == "":
		c.signal(c.sig)
	case key != "":
		c.write(key)
	default:
		if err := unix.IoctlSetWinsize(int(c.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// signal sends sig to redlock run, which may already have ended.
func (c *trial) signal(sig syscall.Signal) {
	if pid := c.fake.Peer(); pid > 0 {
		_ = syscall.Kill(pid, sig)
	}
}

// order ends the leaf.
func (c *trial) order() { c.write("end\n") }

// write sends text to the command. It ignores errors, because the command may have ended.
func (c *trial) write(text string) { _, _ = io.WriteString(c.keys, text) }

// until reads up to the line want, or to the end of the output.
func (c *trial) until(want string) {
	for line, more := c.line(); more && line != want; line, more = c.line() {
	}
}

// drain reads until all processes have ended. It sends the order to end to a process that ignores
// SIGTERM.
func (c *trial) drain() {
	for line, more := c.line(); more; line, more = c.line() {
		if line == "got TERM" && c.phase != whileStopping {
			c.order()
		}
	}
}

// line returns false at the end of the output. A terminal returns an error instead of EOF.
func (c *trial) line() (text string, more bool) {
	text, err := c.lines.ReadString('\n')
	if os.IsTimeout(err) {
		c.t.Fatalf("no more output and no end, after:\n%s%s", c.said.String(), text)
	}
	c.said.WriteString(text)
	return strings.TrimSuffix(text, "\n"), err == nil
}

func (c *trial) check() {
	if _, err := io.ReadAll(c.alive); err != nil {
		c.t.Errorf("a process is left: %v; printed:\n%s", err, c.said.String())
	}
	err := c.cmd.Wait()
	if !slices.Contains(c.wanted(), c.cmd.ProcessState.ExitCode()) {
		c.t.Errorf("it ended with %v, want one of %v; printed:\n%s", err, c.wanted(), c.said.String())
	}
}

// wanted returns the exit codes that are right.
func (c *trial) wanted() []int {
	sig := c.sig
	if !c.deadly() {
		sig = syscall.SIGTERM
	}
	ended := 128 + int(sig)
	switch {
	case c.phase == whileStopping:
		return []int{exit.Lost}
	case c.phase == whileWaiting:
		return []int{ended}
	case c.kind == exitsNow && !c.deadly():
		return []int{5}
	case c.kind == exitsNow, c.shellWaits():
		return []int{5, ended} // the command or the signal, whichever came first
	case c.kind == ignoresTerm && sig == syscall.SIGTERM && !c.shell:
		return []int{5}
	}
	return []int{ended}
}
