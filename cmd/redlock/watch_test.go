package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// changing is a reply that a test can change.
type changing struct {
	lines atomic.Pointer[func() []string]
}

func (c *changing) set(answer func() []string) { c.lines.Store(&answer) }
func (c *changing) answer() []string           { return (*c.lines.Load())() }

// heldFromNowBy returns a reply to WHO in which user has held the lock since this call.
func heldFromNowBy(user string) func() []string {
	start := time.Now()
	return func() []string {
		since := time.Since(start).Milliseconds()
		return []string{fmt.Sprintf("- lock=job mode=exclusive host=web3 pid=12 user=%s since=%d held=3 nodes=5", user, since), "OK n=1"}
	}
}

// redlock watch ends when nothing reads its output any more, as in redlock watch job | head -1, although
// the lock does not change.
func TestWatchWithoutReader(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: cmdtest.Reply("OK n=0")})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, "watch", "job", "--interval", "100ms")
	p.ReadLine()
	p.Stdout.Close()
	p.ExpectExit(128 + int(syscall.SIGPIPE))
}

// redlock watch prints one line for each change, and none if nothing changed. The fake daemon
// returns each state several times.
func TestWatch(t *testing.T) {
	t.Parallel()
	var who changing
	who.set(cmdtest.Reply("OK n=0"))
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: who.answer})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, "watch", "job", "--interval", "100ms")
	expect := func(want string) {
		t.Helper()
		_, got, _ := strings.Cut(p.ReadLine(), "  ")
		if got, _, _ = strings.Cut(got, ", for "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		f.ForgetLooks()
		for range 3 {
			f.ExpectLook(ipc.VerbWho)
		}
	}
	expect("free")
	who.set(heldFromNowBy("cron"))
	expect("held by cron on web3 (pid 12, exclusive")
	who.set(heldFromNowBy("cron")) // cron released it and acquired it again
	expect("held by cron on web3 (pid 12, exclusive")
	held := heldFromNowBy("cron")
	who.set(func() []string {
		line := held()
		return []string{strings.Replace(line[0], "mode=exclusive", "mode=exclusive waiting=yes", 1), line[1]}
	})
	expect("kept for cron on web3 (pid 12), which waited and is next")
	who.set(held) // the new holder has it now
	expect("held by cron on web3 (pid 12, exclusive")
	who.set(cmdtest.Reply("- lock=job mode=shared held=3 nodes=5", "- lock=job mode=exclusive slots=3 slot=2 host=web4 pid=7 user=www since=10 held=3 nodes=5", "OK n=2"))
	expect("held by another Redlock client, which does not identify itself (shared); www on web4 (pid 7, slot 2 of 3")
}

// An answer that arrives late is not taken for a new grant to the same holder.
func TestWatchLateAnswer(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	heldFor := func(ms int) []client.Holder {
		return []client.Holder{{Host: "web3", PID: 12, Since: time.Duration(ms) * time.Millisecond}}
	}
	before := observation{asked: at(0), at: at(1), holders: heldFor(1)}
	late := observation{asked: at(101), at: at(900), holders: heldFor(102)}
	if late.differs(before) {
		t.Error("a holder for 101 ms longer, which was queried 100 ms later, is a new grant, want the same one")
	}
	again := observation{asked: at(101), at: at(102), holders: heldFor(30)}
	if !again.differs(before) {
		t.Error("a holder for 30 ms, which was queried 100 ms later, is the same grant, want a new one")
	}
}

// If the state is unknown, redlock watch says so once and queries again.
func TestWatchUnknown(t *testing.T) {
	t.Parallel()
	var who changing
	who.set(cmdtest.Reply("OK n=0"))
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: who.answer})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, "watch", "job", "--interval", "100ms", "--json")
	read := func() (line watchJSON) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.ReadLine()), &line); err != nil {
			t.Fatal(err)
		}
		return line
	}
	if line := read(); line.State != "free" || line.Lock != "job" || len(line.Holders) != 0 || time.Since(line.Time) > cmdtest.Timeout {
		t.Errorf("at first: %+v, want free, now", line)
	}
	who.set(cmdtest.Reply("ERR NOQUORUM : a: timeout"))
	if line := read(); line.State != "unknown" || !strings.Contains(line.Error, "a: timeout") {
		t.Errorf("without a quorum: %+v, want unknown", line)
	}
	f.ForgetLooks()
	for range 3 {
		f.ExpectLook(ipc.VerbWho)
	}
	who.set(cmdtest.Reply("OK n=0")) // the same state as before, but it was unknown in between
	if line := read(); line.State != "free" {
		t.Errorf("with a quorum again: %+v, want free", line)
	}
	who.set(cmdtest.Reply("- lock=job mode=exclusive waiting=yes host=web4 pid=7 user=www since=10 held=3 nodes=5", "OK n=1"))
	if line := read(); line.State != "kept" || len(line.Holders) != 1 || !line.Holders[0].Next {
		t.Errorf("kept for a waiter: %+v, want kept", line)
	}
	who.set(heldFromNowBy("cron"))
	if line := read(); line.State != "held" || line.Error != "" || len(line.Holders) != 1 || line.Holders[0].User != "cron" {
		t.Errorf("then: %+v, want held by cron", line)
	}
}

func TestWatchRefused(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: cmdtest.Reply("ERR NOQUORUM : a: timeout")})
	code, _, stderr := cmdtest.Run(t, f.Socket, "watch", "job")
	cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "a: timeout")
	code, _, stderr = cmdtest.Run(t, f.Socket, "watch", "job", "--interval", "99ms")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "at least 100ms")
}

func TestSameGrant(t *testing.T) {
	before := client.Holder{Host: "web3", PID: 12, User: "cron", Mode: "exclusive", Since: time.Second}
	after := func(change func(*client.Holder)) client.Holder {
		now := before
		now.Since += time.Second
		change(&now)
		return now
	}
	for _, test := range []struct {
		what string
		now  client.Holder
		want bool
	}{
		{"a second later", after(func(*client.Holder) {}), true},
		{"a late answer", after(func(h *client.Holder) { h.Since -= 400 * time.Millisecond }), true},
		{"taken in between", after(func(h *client.Holder) { h.Since = 900 * time.Millisecond }), false},
		{"taken again soon", after(func(h *client.Holder) { h.Since = 1100 * time.Millisecond }), false},
		{"another process", after(func(h *client.Holder) { h.PID++ }), false},
		{"another host", after(func(h *client.Holder) { h.Host = "web4" }), false},
		{"another user", after(func(h *client.Holder) { h.User = "root" }), false},
		{"another slot", after(func(h *client.Holder) { h.Slot++ }), false},
		{"as a reader", after(func(h *client.Holder) { h.Mode = "shared" }), false},
	} {
		if got := sameGrant(before, test.now, time.Second); got != test.want {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
	}
	unknown := client.Holder{Mode: "exclusive"}
	if !sameGrant(unknown, unknown, time.Second) {
		t.Error("a holder without a name counts as another one each time")
	}
}

// If redlock watch cannot write a change, it ends, as with the first line.
func TestWatchWithUnwritableOutput(t *testing.T) {
	held := false
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: func() []string {
		if held = !held; held {
			return heldFromNowBy("cron")()
		}
		return []string{"OK n=0"}
	}})
	t.Setenv(cmdtest.SocketVariable, f.Socket)
	lines := 0
	w := &watcher{name: "job", interval: time.Millisecond, out: cmdtest.Writing(func() error {
		if lines++; lines < 3 {
			return nil
		}
		return errors.New("no space left")
	})}
	ended := make(chan error, 1)
	go func() { ended <- w.run(t.Context()) }()
	select {
	case err := <-ended:
		if got, is := errors.AsType[*exit.Failure](err); !is || got.Code != exit.Internal {
			t.Errorf("it ends with %v, want exit code 70", err)
		}
	case <-time.After(cmdtest.Timeout):
		t.Fatal("it goes on")
	}
}
