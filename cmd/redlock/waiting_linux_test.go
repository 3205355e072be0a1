package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
)

// heldForLong is a daemon whose lock alice holds, until the test grants it.
type heldForLong struct {
	*cmdtest.Fake
	mu      sync.Mutex
	waiters []string // of LIST
}

func startHeld(t *testing.T, status string) *heldForLong {
	h := &heldForLong{}
	h.Fake = cmdtest.StartFake(t, cmdtest.Replies{
		ipc.VerbStatus: cmdtest.Reply(status),
		ipc.VerbUnlock: cmdtest.Reply("OK"),
		ipc.VerbWho: cmdtest.Reply("- lock=job mode=shared host=web3 pid=4121 user=alice since=5000 ttl=9000 held=3 nodes=5",
			"- lock=job mode=shared host=web4 pid=2 user=bob since=10 ttl=9000 held=3 nodes=5", "OK n=2"),
		ipc.VerbList: func() []string {
			h.mu.Lock()
			defer h.mu.Unlock()
			return append(h.waiters, "OK n=9")
		},
	})
	return h
}

// list sets the waiters in the reply to LIST. A waiter of 0 is pid.
func (h *heldForLong) list(pid int, waiters ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = []string{"- lock=job state=held mode=shared fence=7 ttl=9000 pid=4121 user=alice since=5000"}
	for _, w := range waiters {
		if w == 0 {
			w = pid
		}
		h.waiters = append(h.waiters, "- lock=job state=waiting mode=exclusive pid="+strconv.Itoa(w)+" user=carol since=100",
			"- lock=other state=waiting mode=exclusive pid=77 user=carol since=100")
	}
}

// With --verbose, redlock run names the holder once for each change.
func TestVerboseWait(t *testing.T) {
	t.Parallel()
	h := startHeld(t, cmdtest.StatusReady)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs([]string{"--verbose"}, "true")...)
	h.list(p.Cmd.Process.Pid, 5, 0, 6)
	first := h.ExpectRequest(ipc.VerbLock)
	p.AwaitStderr("held by alice on web3 (pid 4121) and 1 more since ")
	p.AwaitStderr(", place 2 of 3 in the queue of this host\n")
	h.list(p.Cmd.Process.Pid, 0)
	p.AwaitStderr(", place 1 of 1 in the queue of this host\n")
	if n := strings.Count(p.Stderr(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2: %q", n, p.Stderr())
	}
	h.Grant(first)
	p.ExpectExit(0)
}

// While no client holds the lock, redlock run names the waiter that the nodes keep it for. If
// that is redlock run itself, it says that nobody holds the lock.
func TestWaitNamesTheNextWaiter(t *testing.T) {
	t.Parallel()
	host, _ := os.Hostname()
	var who changing
	keptFor := func(host string, pid int) {
		who.set(cmdtest.Reply(fmt.Sprintf("- lock=job mode=exclusive waiting=yes host=%s pid=%d user=bob since=10 ttl=900 held=3 nodes=5", host, pid), "OK n=1"))
	}
	keptFor("web4", 2)
	f := cmdtest.StartFake(t, cmdtest.Replies{
		ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusReady), ipc.VerbUnlock: cmdtest.Reply("OK"), ipc.VerbList: cmdtest.Reply("OK n=0"), ipc.VerbWho: who.answer,
	})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs([]string{"--verbose"}, "true")...)
	lock := f.ExpectRequest(ipc.VerbLock)
	p.AwaitStderr("waiting: kept for bob on web4 (pid 2), which waited and is next\n")
	keptFor(host, p.Cmd.Process.Pid)
	p.AwaitStderr("waiting: nobody holds it at the moment\n")
	keptFor(host, p.Cmd.Process.Pid+1)
	p.AwaitStderr(fmt.Sprintf("waiting: kept for bob on %s (pid %d)", host, p.Cmd.Process.Pid+1))
	f.Grant(lock)
	p.ExpectExit(0)
}

// Without --verbose and without a terminal, redlock run reports only that no quorum votes, once.
func TestQuietWait(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		cmdtest.StatusQuarantined: "redlock: lock \"job\": waiting: no quorum for another 28s\n",
		"OK n=0 nodes=5 quorum=3 spare=-1 : no quorum: 3 nodes are down": "redlock: lock \"job\": waiting: no quorum: 3 nodes are down\n",
		cmdtest.StatusReady: "",
	} {
		h := startHeld(t, status)
		p := cmdtest.Start(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs([]string{"-w", "60"}, "true")...)
		lock := h.ExpectRequest(ipc.VerbLock)
		if want != "" {
			p.AwaitStderr(want)
		}
		h.ExpectLook(ipc.VerbStatus)
		h.Grant(lock)
		p.ExpectExit(0)
		if got := p.Stderr(); got != want {
			t.Errorf("stderr is %q, want %q", got, want)
		}
	}
}

// An outage that begins later is reported, too, and so are nodes that refuse only this lock.
func TestQuietWaitReportsALaterOutage(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct{ status, who, want string }{
		{"OK n=0 nodes=5 quorum=3 spare=-1 : no quorum: 3 nodes are down", "OK n=0", `redlock: lock "job": waiting: no quorum: 3 nodes are down` + "\n"},
		{cmdtest.StatusReady, "ERR NOQUORUM granted=0 needed=3 : the key is a hash", "the key is a hash\n"},
	} {
		var status, who changing
		status.set(cmdtest.Reply(cmdtest.StatusReady))
		who.set(cmdtest.Reply(fault.who))
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: status.answer, ipc.VerbWho: who.answer, ipc.VerbUnlock: cmdtest.Reply("OK")})
		p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, cmdtest.RunArgs(nil, "true")...)
		lock := f.ExpectRequest(ipc.VerbLock)
		f.ExpectLook(ipc.VerbStatus)
		status.set(cmdtest.Reply(fault.status))
		p.AwaitStderr(fault.want)
		f.Grant(lock)
		if p.ExpectExit(0); strings.Count(p.Stderr(), "\n") != 1 {
			t.Errorf("stderr is %q, want one line", p.Stderr())
		}
	}
}

// On a terminal, redlock run shows the wait on one line. It wipes the line when the wait ends.
func TestWaitOnTerminal(t *testing.T) {
	t.Parallel()
	h := startHeld(t, cmdtest.StatusReady)
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs(nil, "sh", "-c", "echo; echo up")...)
	const width = 100
	if err := unix.IoctlSetWinsize(int(tt.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: width}); err != nil {
		t.Fatal(err)
	}
	h.list(cmd.Process.Pid, 5, 0)
	lock := h.ExpectRequest(ipc.VerbLock)
	const line = `^\rredlock: waiting for "job" \([1-9]s, place 2 of 2 here\): held by alice on web3 \(pid 4121\) and 1 more$`
	shown := tt.ReadUntil("more")
	if !regexp.MustCompile(line).MatchString(shown) {
		t.Errorf("the terminal shows %q, want %q", shown, line)
	}
	tt.ReadUntil("\rredlock: waiting for ") // it is drawn again
	h.Grant(lock)
	tt.ReadUntil(strings.Repeat(" ", len(shown)-1) + "\r")
	tt.ExpectLine("")
	tt.ExpectLine("up")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// If the line is too long for the terminal, it omits the less important text and keeps the holder.
// If it is still too long, it is cut and ends with "...".
func TestWaitOnNarrowTerminal(t *testing.T) {
	t.Parallel()
	for width, want := range map[uint16]struct{ end, line string }{
		84: {"more", `^\rredlock: waiting for "job" \([1-9]s\): held by alice on web3 \(pid 4121\) and 1 more$`},
		50: {"...", `^\rredlock: waiting \([1-9]s\): held by alice on web3 [(p]+\.\.\.$`},
	} {
		h := startHeld(t, cmdtest.StatusReady)
		tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs(nil, "true")...)
		if err := unix.IoctlSetWinsize(int(tt.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: width}); err != nil {
			t.Fatal(err)
		}
		h.list(cmd.Process.Pid, 5, 0)
		lock := h.ExpectRequest(ipc.VerbLock)
		if shown := tt.ReadUntil(want.end); !regexp.MustCompile(want.line).MatchString(shown) {
			t.Errorf("the terminal of %d columns shows %q, want %q", width, shown, want.line)
		}
		h.Grant(lock)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// The daemon's text about a quarantine is too long for the line. redlock run prints it once,
// above the line.
func TestQuarantineOnTerminal(t *testing.T) {
	t.Parallel()
	h := startHeld(t, cmdtest.StatusQuarantined+": nodes are new")
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs(nil, "true")...)
	lock := h.ExpectRequest(ipc.VerbLock)
	tt.ExpectLine(`redlock: lock "job": waiting: no quorum for another 28s: nodes are new`)
	for range 2 {
		shown := tt.ReadUntil("for another 28s")
		if !regexp.MustCompile(`^\rredlock: waiting for "job" \([1-9]s\): no quorum for another 28s$`).MatchString(shown) {
			t.Errorf("the terminal shows %q", shown)
		}
	}
	h.Grant(lock)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// redlock run also wipes the line when a signal arrives.
func TestInterruptedOnTerminal(t *testing.T) {
	t.Parallel()
	h := startHeld(t, cmdtest.StatusReady)
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs(nil, "true")...)
	h.list(cmd.Process.Pid, 5, 0)
	tt.ReadUntil("held by alice on web3")
	tt.Type("\x03")
	tt.ReadUntil(" \r")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGINT) {
		t.Errorf("it ended with %v, want exit code 130", err)
	}
}

// If the user stops the terminal's output (Ctrl-S), redlock run does not block on it. It
// still runs the command, and a signal still ends the wait.
func TestWaitOnStillTerminal(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]struct {
		wait func(h *heldForLong, lock ipc.Request, cmd *exec.Cmd)
		code int
	}{
		"granted":  {func(h *heldForLong, lock ipc.Request, _ *exec.Cmd) { h.Grant(lock) }, 5},
		"a signal": {func(_ *heldForLong, _ ipc.Request, cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGTERM) }, 128 + int(syscall.SIGTERM)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := startHeld(t, cmdtest.StatusReady)
			tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, h.Socket, cmdtest.RunArgs([]string{"--verbose"}, "sh", "-c", "exit 5")...)
			h.list(cmd.Process.Pid, 5, 0)
			lock := h.ExpectRequest(ipc.VerbLock)
			tt.ReadUntil("held by alice on web3")
			tt.Type("\x13")
			for range 3 { // the first was printed, and the second has ended when the third begins
				h.ExpectLook(ipc.VerbStatus)
				h.ExpectLook(ipc.VerbWho)
				h.ExpectLook(ipc.VerbList)
			}
			end.wait(h, lock, cmd)
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != end.code {
				t.Errorf("it ended with %v, want exit code %d", err, end.code)
			}
		})
	}
}

// redlock run --verbose does not block on a stderr that no process reads, so it does not hold the
// lock longer.
func TestVerboseWithoutReader(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmdtest.FillPipe(t, w)
	cmd := cmdtest.Command(t, cmdtest.TestBinary, cmdtest.RunArgs([]string{"--verbose"}, "true")...)
	cmd.Env = append(os.Environ(), cmdtest.RoleVariable+"="+cmdtest.RoleRedlock, cmdtest.SocketVariable+"="+f.Socket)
	cmd.Stderr = w
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// A job in the background does not draw on the terminal.
func TestWaitInBackground(t *testing.T) {
	t.Parallel()
	h := startHeld(t, cmdtest.StatusReady)
	cmd := cmdtest.Command(t, "sh", append([]string{"-c", `set -m; "$@" & wait $!`, "sh", cmdtest.TestBinary}, cmdtest.RunArgs(nil, "echo", "up")...)...)
	tt := cmdtest.StartOnTerminal(t, cmd, cmdtest.RoleRedlock, h.Socket)
	lock := h.ExpectRequest(ipc.VerbLock)
	h.ExpectLook(ipc.VerbStatus)
	h.ExpectLook(ipc.VerbWho)
	h.ExpectLook(ipc.VerbList)
	h.ExpectLook(ipc.VerbStatus) // a second query means that the first has ended and was not drawn
	h.Grant(lock)
	tt.ExpectLine("up")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
