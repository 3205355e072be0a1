package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
)

func TestDurationFlag(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, ".25": 250 * time.Millisecond,
		"250ms": 250 * time.Millisecond, "1h30m": 90 * time.Minute, "2m": 2 * time.Minute, "1e3": 1000 * time.Second,
	} {
		var d durationFlag
		if err := d.Set(word); err != nil || time.Duration(d) != want {
			t.Errorf("%q is %v, %v, want %v", word, time.Duration(d), err, want)
		}
	}
	for _, word := range []string{"", "-1", "-1s", "5 s", "5d", "NaN", "inf", "1e300", "soon"} {
		d := durationFlag(7)
		if err := d.Set(word); err == nil || d != 7 {
			t.Errorf("%q is taken for %v", word, time.Duration(d))
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", 1234 * time.Microsecond: "1ms", 1260 * time.Millisecond: "1.3s", 61400 * time.Millisecond: "1m1s", -1: "-",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{"a b": "a b", "ümlaut": "ümlaut", "\x1b[2J": `"\x1b[2J"`, "a\tb": `"a\tb"`, "\u202e": `"\u202e"`} {
		if got := cell(text); got != want {
			t.Errorf("cell(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestKillMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 50 * time.Millisecond, time.Second: 50 * time.Millisecond,
		2 * time.Second: 100 * time.Millisecond, 10 * time.Second: 500 * time.Millisecond,
	} {
		if got := killMargin(ttl); got != want {
			t.Errorf("killMargin(%v) = %v, want %v", ttl, got, want)
		}
	}
}

// Whose lease time was made shorter is not killed long before its deadline: it would be
// while the lease is extended.
func TestKillMarginOfAnotherLeaseTime(t *testing.T) {
	for guard, want := range map[time.Duration]time.Duration{
		400 * time.Millisecond: 100 * time.Millisecond, // of 2 s
		6 * time.Second:        1500 * time.Millisecond,
		time.Minute:            1500 * time.Millisecond, // longer: what was announced stays
	} {
		c := &child{margin: killMargin(30 * time.Second), lease: guarded{guard: guard}}
		if got := c.killMargin(); got != want {
			t.Errorf("with a guard of %v the margin is %v, want %v", guard, got, want)
		}
	}
}

// guarded is a lease with a guard.
type guarded struct {
	lease
	guard time.Duration
}

func (g guarded) Guard() time.Duration { return g.guard }

// That redlockd does not answer is said where nothing better is known.
func TestSilence(t *testing.T) {
	for _, why := range []error{client.ErrHeld, client.ErrNoQuorum, client.ErrUnavailable, client.ErrShutdown} {
		if err := errors.Join(why, context.DeadlineExceeded); silence(err) != err {
			t.Errorf("%v is taken for %v", err, silence(err))
		}
	}
	if err := silence(context.DeadlineExceeded); !strings.Contains(err.Error(), "does not answer") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of the time is said to be %v", err)
	}
	if err := silence(context.Canceled); err != context.Canceled {
		t.Errorf("the end by a signal is said to be %v", err)
	}
}

// Who shares a lock does not wait for himself where what he runs under has it, too.
func TestSharesOfFlags(t *testing.T) {
	for _, test := range []struct {
		flags runFlags
		want  bool
	}{
		{runFlags{}, false},
		{runFlags{exclusive: true}, false},
		{runFlags{shared: true}, true},
		{runFlags{slots: 1}, false},
		{runFlags{slots: 2}, true},
	} {
		test.flags.given = func(string) bool { return false }
		if got := test.flags.job().shares; got != test.want {
			t.Errorf("%+v: shares %v, want %v", test.flags, got, test.want)
		}
	}
}

// The command under a lock may look for the socket from another directory.
func TestSocketPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for given, want := range map[string]string{"": client.DefaultSocket, "/s": "/s", "s": filepath.Join(dir, "s"), "./a/../s": filepath.Join(dir, "s")} {
		t.Setenv(socketOfTests, given)
		if got := socketPath(); got != want {
			t.Errorf("REDLOCK_SOCKET=%s: %q, want %q", given, got, want)
		}
	}
}

// Deep down in the file system a daemon listens at ./redlockd.sock, and there it is found.
func TestSocketPathInDeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", ipc.MaxSocketPath))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv(socketOfTests, "./s")
	l, err := net.Listen("unix", socketPath())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestHolderWord(t *testing.T) {
	h := client.Holder{Host: "web3", User: "alice", PID: 4121, Mode: "exclusive"}
	if got, want := holderWord(&h), "alice on web3 (pid 4121)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	h.PID = 0 // his daemon does not see it
	if got, want := holderText(h), "alice on web3 (exclusive, for -)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := forcedText(client.Forced{Holders: 1, Holder: &h}), "taken from alice on web3, who may be at work until it notices"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
