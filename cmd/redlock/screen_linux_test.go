package main

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
	"github.com/redlockd/redlockd/ipc"
)

// On a terminal, redlock force shows the holder, and revokes nothing without a yes.
func TestForceAsks(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		code   int
		text   string
		forces int
	}{
		"yes\n": {0, "taken from cron on web3", 1},
		"y\n":   {exitUnconfirmed, "not revoked", 0},
		"\n":    {exitUnconfirmed, "not revoked", 0},
		"\x04":  {exitUnconfirmed, "not revoked", 0}, // the end of input
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: heldFromNowBy("cron"), ipc.VerbForce: cmdtest.Reply(forcedWeb3)})
		tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, "force", "job")
		if shown := tt.ReadUntil("Type yes: "); !strings.Contains(shown, `"job" is held by cron on web3 (pid 12, exclusive`) {
			t.Errorf("it asks %q, without the holder", shown)
		}
		f.ExpectLook(ipc.VerbWho)
		f.AwaitDisconnect()
		tt.Type(answer)
		if shown := tt.ReadUntil(want.text); strings.HasPrefix(shown, "\n") != (answer == "\x04") {
			t.Errorf("%q: after the question it shows %q, want a new line where none was typed", answer, shown)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != want.code {
			t.Errorf("%q: exit code %d, want %d", answer, code, want.code)
		}
		if len(f.Requests) != want.forces {
			t.Errorf("%q: FORCE was asked for %d times, want %d", answer, len(f.Requests), want.forces)
		}
	}
}

// If redlock force cannot find out the holder, it does not ask, and revokes nothing.
func TestForceOfUnknownHolder(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: cmdtest.Reply("ERR NOQUORUM : 3 of 5 nodes are down"), ipc.VerbForce: cmdtest.Reply(forcedWeb3)})
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, "force", "job")
	if shown := tt.ReadUntil("3 of 5 nodes are down"); strings.Contains(shown, "Type yes") {
		t.Errorf("it asks %q", shown)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exit.Unavailable {
		t.Errorf("exit code %d, want %d", code, exit.Unavailable)
	}
}

// If no client holds the lock, redlock force does not ask, and no later holder loses it.
func TestForceOfFreeLock(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: cmdtest.Reply("OK n=0"), ipc.VerbForce: cmdtest.Reply(forcedWeb3)})
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, "force", "job")
	if shown := tt.ReadUntil("nobody held it"); strings.Contains(shown, "Type yes") {
		t.Errorf("it asks %q", shown)
	}
	cmd.Wait()
	f.ExpectLook(ipc.VerbWho)
	if code := cmd.ProcessState.ExitCode(); code != 0 || len(f.Requests) > 0 {
		t.Errorf("exit code %d and %d requests, want none", code, len(f.Requests))
	}
}

// Each frame of top replaces the previous one, and no line wraps.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, shown)
	tt, cmd := cmdtest.OnTerminal(t, cmdtest.RoleRedlock, f.Socket, "top", "--interval", "100ms")
	if err := unix.IoctlSetWinsize(int(tt.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 8, Col: 20}); err != nil {
		t.Fatal(err)
	}
	tt.ReadUntil(term.ClearScreen)
	var lines []string
	for len(lines) != 8 { // the first frame may be drawn before the terminal has its size
		f.ForgetLooks()
		picture := tt.ReadUntil(term.ClearBelow)
		if !strings.HasPrefix(picture, term.CursorHome) || strings.Contains(picture, term.ClearScreen) {
			t.Fatalf("a picture is %q, want it in the place of that before", picture)
		}
		lines = strings.Split(picture, term.ClearLine+"\n")
	}
	if lines[1] != "NOT READY (a quorum " || lines[5] != "NODE  ADDRESS       " || lines[7] != term.ClearBelow {
		t.Errorf("it shows %q", lines)
	}
	tt.Type("\x03")
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v, want that Ctrl-C ends it", err)
	}
}
