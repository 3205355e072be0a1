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
	"time"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// heldForLong is a daemon whose lock alice holds, until the test grants it.
type heldForLong struct {
	*fake
	mu      sync.Mutex
	waiters []string // of LIST
}

func startHeld(t *testing.T, status string) *heldForLong {
	h := &heldForLong{}
	h.fake = startFake(t, answers{
		ipc.VerbStatus: says(status),
		ipc.VerbUnlock: says("OK"),
		ipc.VerbWho: says("- lock=job mode=shared host=web3 pid=4121 user=alice since=5000 ttl=9000 held=3 nodes=5",
			"- lock=job mode=shared host=web4 pid=2 user=bob since=10 ttl=9000 held=3 nodes=5", "OK n=2"),
		ipc.VerbList: func() []string {
			h.mu.Lock()
			defer h.mu.Unlock()
			return append(h.waiters, "OK n=9")
		},
	})
	return h
}

// list has LIST answer with waiters; 0 is the pid of p.
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

// --verbose says who holds the lock, once for each change.
func TestVerboseWait(t *testing.T) {
	t.Parallel()
	h := startHeld(t, statusReady)
	p := start(t, roleRedlock, h.socket, runOf([]string{"--verbose"}, "true")...)
	h.list(p.cmd.Process.Pid, 5, 0, 6)
	first := h.read(ipc.VerbLock)
	p.awaitSaid("held by alice on web3 (pid 4121) and 1 more since ")
	p.awaitSaid(", place 2 of 3 in the queue of this host\n")
	h.list(p.cmd.Process.Pid, 0)
	p.awaitSaid(", place 1 of 1 in the queue of this host\n")
	if n := strings.Count(p.said(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2: %q", n, p.said())
	}
	h.grant(first)
	p.ends(0)
}

// Who waits is told for whom the lock is kept that nobody holds; of himself he is told
// that nobody holds it.
func TestWaitForWhoIsNext(t *testing.T) {
	t.Parallel()
	host, _ := os.Hostname()
	var who changing
	keptFor := func(host string, pid int) {
		who.set(says(fmt.Sprintf("- lock=job mode=exclusive waiting=yes host=%s pid=%d user=bob since=10 ttl=900 held=3 nodes=5", host, pid), "OK n=1"))
	}
	keptFor("web4", 2)
	f := startFake(t, answers{
		ipc.VerbStatus: says(statusReady), ipc.VerbUnlock: says("OK"), ipc.VerbList: says("OK n=0"), ipc.VerbWho: who.answer,
	})
	p := start(t, roleRedlock, f.socket, runOf([]string{"--verbose"}, "true")...)
	lock := f.read(ipc.VerbLock)
	p.awaitSaid("waiting: kept for bob on web4 (pid 2), who has waited and is next\n")
	keptFor(host, p.cmd.Process.Pid)
	p.awaitSaid("waiting: nobody holds it just now\n")
	keptFor(host, p.cmd.Process.Pid+1)
	p.awaitSaid(fmt.Sprintf("waiting: kept for bob on %s (pid %d)", host, p.cmd.Process.Pid+1))
	f.grant(lock)
	p.ends(0)
}

// A command that waits for the lock that it runs under would wait for ever: that is said,
// but not where it may share it.
func TestWaitForItself(t *testing.T) {
	t.Setenv("REDLOCK_NAME", "other,job")
	for _, flags := range [][]string{nil, {"--slots", "1"}} {
		h := startHeld(t, statusReady)
		p := start(t, roleRedlock, h.socket, runOf(append(flags, "-w", "60"), "true")...)
		lock := h.read(ipc.VerbLock)
		p.awaitSaid("redlock: lock \"job\": waiting: this runs under it already, as REDLOCK_NAME says: it waits for itself\n")
		h.grant(lock)
		p.ends(0)
	}
	for _, flags := range [][]string{{"-s"}, {"--slots", "2"}} {
		h := startHeld(t, statusReady)
		p := start(t, roleRedlock, h.socket, runOf(append(flags, "-w", "60"), "true")...)
		lock := h.read(ipc.VerbLock)
		h.asked(ipc.VerbStatus)
		h.grant(lock)
		if p.ends(0); strings.Contains(p.said(), "itself") {
			t.Errorf("%v: it says %q", flags, p.said())
		}
	}
}

// Who has outlived what it was started under does not wait for itself.
func TestWaitForAnotherAfterRun(t *testing.T) {
	t.Setenv("REDLOCK_NAME", "job")
	t.Setenv("REDLOCK_LEASE", "gone")
	for answer, want := range map[string]bool{"ERR NOTHELD : no lease with this id": false, "ERR LOST : reason=max": false, granted(boottime.Exact()+time.Hour, time.Hour): true} {
		f := startFake(t, answers{ipc.VerbStatus: says(statusReady), ipc.VerbCheck: says(answer), ipc.VerbUnlock: says("OK")})
		p := start(t, roleRedlock, f.socket, runOf([]string{"-w", "60"}, "true")...)
		lock := f.read(ipc.VerbLock)
		f.asked(ipc.VerbStatus)
		f.grant(lock)
		if p.ends(0); strings.Contains(p.said(), "itself") != want {
			t.Errorf("%s: stderr is %q, want a warning: %v", answer, p.said(), want)
		}
	}
}

// Without --verbose, and without a terminal, only a quarantine is said, once.
func TestQuietWait(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		statusQuarantined: "redlock: lock \"job\": waiting: no quorum for another 28s\n",
		statusReady:       "",
	} {
		h := startHeld(t, status)
		p := start(t, roleRedlock, h.socket, runOf([]string{"-w", "60"}, "true")...)
		lock := h.read(ipc.VerbLock)
		if want != "" {
			p.awaitSaid(want)
		}
		h.asked(ipc.VerbStatus)
		h.grant(lock)
		p.ends(0)
		if got := p.said(); got != want {
			t.Errorf("stderr is %q, want %q", got, want)
		}
	}
}

// On a terminal it stands on one line, which is wiped when the wait is over.
func TestWaitOnTerminal(t *testing.T) {
	t.Parallel()
	h := startHeld(t, statusReady)
	tt, cmd := onTerminal(t, roleRedlock, h.socket, runOf(nil, "sh", "-c", "echo; echo up")...)
	const width = 100
	if err := unix.IoctlSetWinsize(int(tt.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: width}); err != nil {
		t.Fatal(err)
	}
	h.list(cmd.Process.Pid, 5, 0)
	lock := h.read(ipc.VerbLock)
	const line = `^\rredlock: waiting for "job" \([1-9]s, place 2 of 2 here\): held by alice on web3 \(pid 4121\) and 1 more$`
	if shown := tt.until("more"); !regexp.MustCompile(line).MatchString(shown) {
		t.Errorf("the terminal shows %q, want %q", shown, line)
	}
	tt.until("\rredlock: waiting for ") // it is drawn again
	h.grant(lock)
	tt.until("\r" + strings.Repeat(" ", width-1) + "\r")
	tt.expect("")
	tt.expect("up")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A line that is too long for the terminal shows that it is cut.
func TestWaitOnNarrowTerminal(t *testing.T) {
	t.Parallel()
	h := startHeld(t, statusReady)
	tt, cmd := onTerminal(t, roleRedlock, h.socket, runOf(nil, "true")...)
	const width = 84
	if err := unix.IoctlSetWinsize(int(tt.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: width}); err != nil {
		t.Fatal(err)
	}
	h.list(cmd.Process.Pid, 5, 0)
	lock := h.read(ipc.VerbLock)
	shown := strings.TrimPrefix(tt.until("..."), "\r")
	if len(shown) != width-1 || !strings.HasSuffix(shown, "held by alice on web3 (pid 4...") {
		t.Errorf("the terminal of %d columns shows %q (%d)", width, shown, len(shown))
	}
	h.grant(lock)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The line is wiped, too, when a signal comes.
func TestInterruptedOnTerminal(t *testing.T) {
	t.Parallel()
	h := startHeld(t, statusReady)
	tt, cmd := onTerminal(t, roleRedlock, h.socket, runOf(nil, "true")...)
	h.list(cmd.Process.Pid, 5, 0)
	tt.until("held by alice on web3")
	tt.typed("\x03")
	tt.until(" \r")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGINT) {
		t.Errorf("it ended with %v, want exit code 130", err)
	}
}

// On a terminal that was told to be still (Ctrl-S) nothing is shown, and nothing waits for
// that: the command is run, and a signal ends the wait.
func TestWaitOnStillTerminal(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]struct {
		wait func(h *heldForLong, lock ipc.Request, cmd *exec.Cmd)
		code int
	}{
		"granted":  {func(h *heldForLong, lock ipc.Request, _ *exec.Cmd) { h.grant(lock) }, 5},
		"a signal": {func(_ *heldForLong, _ ipc.Request, cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGTERM) }, 128 + int(syscall.SIGTERM)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := startHeld(t, statusReady)
			tt, cmd := onTerminal(t, roleRedlock, h.socket, runOf([]string{"--verbose"}, "sh", "-c", "exit 5")...)
			h.list(cmd.Process.Pid, 5, 0)
			lock := h.read(ipc.VerbLock)
			tt.until("held by alice on web3")
			tt.typed("\x13")
			for range 3 { // the first was shown, and the second is over when the third begins
				h.asked(ipc.VerbStatus)
				h.asked(ipc.VerbWho)
				h.asked(ipc.VerbList)
			}
			end.wait(h, lock, cmd)
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != end.code {
				t.Errorf("it ended with %v, want exit code %d", err, end.code)
			}
		})
	}
}

// Who asks for each step does not hold the lock for the sake of who reads that, or does not.
func TestVerboseWithoutReader(t *testing.T) {
	t.Parallel()
	f := startFake(t, holding())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fill(t, w)
	cmd := command(t, testBinary, runOf([]string{"--verbose"}, "true")...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleRedlock, socketOfTests+"="+f.socket)
	cmd.Stderr = w
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// A job in the background lets the terminal alone.
func TestWaitInBackground(t *testing.T) {
	t.Parallel()
	h := startHeld(t, statusReady)
	cmd := command(t, "sh", append([]string{"-c", `set -m; "$@" & wait $!`, "sh", testBinary}, runOf(nil, "echo", "up")...)...)
	tt := startOnTerminal(t, cmd, roleRedlock, h.socket)
	lock := h.read(ipc.VerbLock)
	h.asked(ipc.VerbStatus)
	h.asked(ipc.VerbWho)
	h.asked(ipc.VerbList)
	h.asked(ipc.VerbStatus) // the second time: the first is over, and was not drawn
	h.grant(lock)
	tt.expect("up")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// until reads on the terminal to the end of text.
func (tt *terminal) until(text string) string {
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

func TestColumns(t *testing.T) {
	_, slave := openTerminal(t)
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if got := columns(slave); got != 80 {
		t.Errorf("a terminal of unknown width has %d columns, want 80", got)
	}
	if got := columns(w); got != 0 {
		t.Errorf("a pipe has %d columns, want 0", got)
	}
	if !writable(w) {
		t.Error("an empty pipe is not writable")
	}
	fill(t, w)
	if writable(w) {
		t.Error("a full pipe is writable")
	}
}

// fill writes until the pipe takes no more.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		if _, err := w.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}

func TestClock(t *testing.T) {
	now := time.Now()
	if got := clock(now.Add(-time.Hour)); len(got) != len("15:04:05") {
		t.Errorf("an hour ago is %q, want a time only", got)
	}
	if got := clock(now.Add(-20 * time.Hour)); !strings.HasPrefix(got, now.Add(-20*time.Hour).Format("2006-01-02 ")) {
		t.Errorf("20 hours ago is %q, want a date", got)
	}
	if got := clock(now.Add(-100 * time.Hour)); !strings.HasPrefix(got, now.Add(-100*time.Hour).Format("2006-01-02 ")) {
		t.Errorf("100 hours ago is %q, want a date", got)
	}
}
