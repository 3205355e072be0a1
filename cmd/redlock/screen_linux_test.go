package main

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/ipc"
)

// On a terminal it shows whom it is about, and does nothing without a yes.
func TestForceAsks(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		code   int
		text   string
		forces int
	}{
		"yes\n": {0, "taken from cron on web3", 1},
		"y\n":   {exitUnconfirmed, "left as it is", 0},
		"\n":    {exitUnconfirmed, "left as it is", 0},
		"\x04":  {exitUnconfirmed, "left as it is", 0}, // the end of input
	} {
		f := startFake(t, answers{ipc.VerbWho: heldFromNowBy("cron"), ipc.VerbForce: says(forcedWeb3)})
		tt, cmd := onTerminal(t, roleRedlock, f.socket, "force", "job")
		if shown := tt.until("Type yes: "); !strings.Contains(shown, `"job" is held by cron on web3 (pid 12, exclusive`) {
			t.Errorf("it asks %q, without the holder", shown)
		}
		f.asked(ipc.VerbWho)
		f.left()
		tt.typed(answer)
		if shown := tt.until(want.text); strings.HasPrefix(shown, "\n") != (answer == "\x04") {
			t.Errorf("%q: after the question it shows %q, want a new line where none was typed", answer, shown)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != want.code {
			t.Errorf("%q: exit code %d, want %d", answer, code, want.code)
		}
		if len(f.requests) != want.forces {
			t.Errorf("%q: FORCE was asked for %d times, want %d", answer, len(f.requests), want.forces)
		}
	}
}

// Whom it would be taken from is known, or nobody is asked, and nothing is taken.
func TestForceAsksNobody(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{ipc.VerbWho: says("ERR NOQUORUM : 3 of 5 nodes are down"), ipc.VerbForce: says(forcedWeb3)})
	tt, cmd := onTerminal(t, roleRedlock, f.socket, "force", "job")
	if shown := tt.until("3 of 5 nodes are down"); strings.Contains(shown, "Type yes") {
		t.Errorf("it asks %q", shown)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitUnavailable {
		t.Errorf("exit code %d, want %d", code, exitUnavailable)
	}
}

// A picture takes the place of the one before, and no line wraps.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	f := startFake(t, shown)
	tt, cmd := onTerminal(t, roleRedlock, f.socket, "top", "--interval", "100ms")
	if err := unix.IoctlSetWinsize(int(tt.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 8, Col: 20}); err != nil {
		t.Fatal(err)
	}
	tt.until(clearScreen)
	var lines []string
	for len(lines) != 8 { // the first may have been drawn before the terminal had its size
		f.forget()
		picture := tt.until(clearBelow)
		if !strings.HasPrefix(picture, cursorHome) || strings.Contains(picture, clearScreen) {
			t.Fatalf("a picture is %q, want it in the place of that before", picture)
		}
		lines = strings.Split(picture, clearLine+"\n")
	}
	if lines[1] != "NOT READY (a quorum " || lines[5] != "NODE  ADDRESS       " || lines[7] != clearBelow {
		t.Errorf("it shows %q", lines)
	}
	tt.typed("\x03")
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v, want that Ctrl-C ends it", err)
	}
}

// The progress of a measurement is shown while it lasts. Each of its parts has to last for
// two looks at least, or a busy machine shows none of it.
func TestBenchShowsProgress(t *testing.T) {
	_, socket := startDaemon(t)
	const length = 4 * 3 * progressEvery
	tt, cmd := onTerminal(t, roleRedlock, socket, "bench", "--duration", length.String(), "--workers", "2")
	tt.until("%")
	if shown := tt.until(clearLine); !strings.HasPrefix(shown, " 1/4 ping") {
		t.Errorf("it shows %q, want the first part", shown)
	}
	tt.until("4/4 hand-over" + clearLine)
	tt.until("\r" + clearLine + "redlockd ")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A terminal that does not tell its size has a usual one: nothing would be shown otherwise.
func TestScreenWithoutSize(t *testing.T) {
	_, slave := openTerminal(t)
	defer slave.Close()
	if s, ok := screenOf(slave); !ok || s != (screen{80, 24}) {
		t.Errorf("the screen is %v, %v, want 80 columns and 24 rows", s, ok)
	}
}
