package job

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
)

func TestClock(t *testing.T) {
	now := time.Now()
	if got := timeOfDay(now.Add(-time.Hour)); len(got) != len("15:04:05") {
		t.Errorf("an hour ago is %q, want a time only", got)
	}
	if got := timeOfDay(now.Add(-20 * time.Hour)); !strings.HasPrefix(got, now.Add(-20*time.Hour).Format("2006-01-02 ")) {
		t.Errorf("20 hours ago is %q, want a date", got)
	}
	if got := timeOfDay(now.Add(-100 * time.Hour)); !strings.HasPrefix(got, now.Add(-100*time.Hour).Format("2006-01-02 ")) {
		t.Errorf("100 hours ago is %q, want a date", got)
	}
}

// After the wait, redlock run writes nothing, so that it does not overwrite the command's output.
func TestNothingIsPrintedAfterTheWait(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusQuarantined)})
	var written atomic.Bool
	begun, over, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	j := &Job{Name: "job", Names: []string{"job"}, Stderr: cmdtest.Writing(func() error {
		close(begun)
		<-over
		written.Store(true)
		return nil
	})}
	end := j.explainWait(t.Context(), cmdtest.Dial(t, f.Socket))
	<-begun
	go func() { // awaited below
		defer close(ended)
		end()
	}()
	for !isGoroutineIn("sync.(*WaitGroup).Wait", "explainWait") { // end waits
		select {
		case <-ended:
			t.Fatal("the wait has ended, but text is still written")
		default:
			runtime.Gosched()
		}
	}
	close(over)
	if <-ended; !written.Load() {
		t.Error("the wait has ended, but text is still written")
	}
}

// isGoroutineIn reports whether the stack of a goroutine has all of these functions.
func isGoroutineIn(functions ...string) bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for one := range strings.SplitSeq(string(stacks), "\n\n") {
		if !slices.ContainsFunc(functions, func(function string) bool { return !strings.Contains(one, function) }) {
			return true
		}
	}
	return false
}

// redlock run does not repeat a message, however long ago the holder acquired the lock.
func TestPrintedOnce(t *testing.T) {
	var out strings.Builder
	w := &waiting{name: "job", names: []string{"job"}, out: &out}
	w.printOnce(reason{what: "held by alice", since: " since 10:00:00"})
	w.printOnce(reason{what: "held by alice", since: " since 10:00:01"})
	w.printOnce(reason{}) // the wait has ended
	w.printOnce(reason{what: "held by alice", since: " since 10:00:01", position: 1, queued: 2})
	const want = `redlock: lock "job": waiting: held by alice since 10:00:00
redlock: lock "job": waiting: held by alice since 10:00:01, place 1 of 2 in the queue of this host
`
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If the reason is unknown, redlock run says so. If it waits for several names, it names the one
// that is held. After the wait, it gives no reason.
func TestReasonOfTheWait(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancel(t.Context())
	end()
	for _, test := range []struct {
		name string
		ctx  context.Context
		who  []string
		want string
	}{
		{"held", t.Context(), []string{"- lock=b mode=exclusive host=web3 pid=7 user=alice since=1 ttl=9 held=3 nodes=5", "OK n=1"}, `"a" is held by alice on web3 (pid 7)`},
		{"held by two", t.Context(), []string{"- lock=b mode=shared host=web3 pid=7 user=alice since=1 ttl=9 held=3 nodes=5", "- lock=b mode=shared ttl=9 held=3 nodes=5", "OK n=2"}, `"a" is held by alice on web3 (pid 7) and 1 more`},
		{"by a process that is not known", t.Context(), []string{"- lock=b mode=exclusive host=web3 user=alice since=1 ttl=9 held=3 nodes=5", "OK n=1"}, `"a" is held by alice on web3`},
		{"kept", t.Context(), []string{"- lock=b waiting=yes host=web3 pid=7 user=alice since=1 ttl=9 held=3 nodes=5", "OK n=1"}, `"a" is kept for alice on web3 (pid 7), which waited and is next`},
		{"free", t.Context(), []string{"OK n=0"}, "nobody holds it at the moment"},
		{"another client's", t.Context(), []string{"- lock=a mode=exclusive ttl=9 held=3 nodes=5", "OK n=1"}, `"a" is held by another Redlock client`},
		{"not allowed", t.Context(), []string{"ERR DENIED : no rule allows it"}, "the holder is unknown: "},
		{"over", over, []string{"OK n=0"}, ""},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply(cmdtest.StatusReady), ipc.VerbWho: cmdtest.Reply(test.who...), ipc.VerbList: cmdtest.Reply("OK n=0")})
		w := &waiting{client: cmdtest.Dial(t, f.Socket), name: "a,b", names: []string{"a", "b"}}
		if got := w.reason(test.ctx).what; got != test.want && (test.name != "not allowed" || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A lock is kept for us only if both the pid and the host match, because a pid identifies a process
// on one host only.
func TestKeptForUs(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	w := &waiting{holder: 7}
	us := client.Holder{Waits: true, PID: 7, Host: host}
	holds, another, elsewhere := us, us, us
	holds.Waits, another.PID, elsewhere.Host = false, us.PID+1, host+"2"
	for h, want := range map[client.Holder]bool{us: true, holds: false, another: false, elsewhere: false} {
		if got := w.isKeptForUs(h); got != want {
			t.Errorf("%+v: kept for us is %v, want %v", h, got, want)
		}
	}
}

// redlock run shows the position if it is known. It prints text that is too long for the
// terminal only as a separate line.
func TestReason(t *testing.T) {
	for _, test := range []struct {
		r          reason
		line, wide string
	}{
		{reason{what: "held", since: " since 9:00"}, "held since 9:00", `redlock: waiting for "a" (3s): held since 9:00`},
		{reason{what: "held", position: 1, queued: 2}, "held, place 1 of 2 in the queue of this host", `redlock: waiting for "a" (3s, place 1 of 2 here): held`},
		{
			reason{what: "held", since: " since 9:00", hosts: "position 2 in the wait queue, behind web2", position: 1, queued: 2},
			"held since 9:00, position 2 in the wait queue, behind web2, place 1 of 2 in the queue of this host",
			`redlock: waiting for "a" (3s, place 1 of 2 here): held since 9:00, position 2 in the wait queue, behind web2`,
		},
		{reason{what: "no quorum", detail: "nodes are new"}, "no quorum: nodes are new", `redlock: waiting for "a" (3s): no quorum`},
	} {
		if line, wide := test.r.String(), test.r.lines("a", 3*time.Second)[0]; line != test.line || wide != test.wide {
			t.Errorf("%+v is %q and %q, want %q and %q", test.r, line, wide, test.line, test.wide)
		}
	}
}

// A narrow terminal shows the holder too: all other text is omitted before the holder is cut.
func TestLineForTerminal(t *testing.T) {
	r := reason{what: "held by alice on web3 (pid 4121)", since: " since 09:00:00", position: 2, queued: 3}
	for room, want := range map[int]string{
		101: `redlock: waiting for "job" (1m3s, place 2 of 3 here): held by alice on web3 (pid 4121) since 09:00:00`,
		100: `redlock: waiting for "job" (1m3s, place 2 of 3 here): held by alice on web3 (pid 4121)`,
		79:  `redlock: waiting for "job" (1m3s): held by alice on web3 (pid 4121)`,
		60:  `redlock: waiting (1m3s): held by alice on web3 (pid 4121)`,
		40:  `redlock: waiting (1m3s): held by alic...`,
	} {
		if got := string(fit(r.lines("job", 63*time.Second), room)); got != want {
			t.Errorf("in %d columns: %q, want %q", room, got, want)
		}
	}
}

// A cut line shows that it is cut: "(pid 411" instead of "(pid 4111)" would name another process.
func TestFit(t *testing.T) {
	const line = "held by алиса on web31 (pid 4111)"
	for room, want := range map[int]string{
		0: "", 1: ".", 3: "...", 4: "h...", 17: "held by алиса ...", 32: "held by алиса on web31 (pid 4...", 33: line, 80: line,
	} {
		if got := string(truncate([]rune(line), room)); got != want {
			t.Errorf("in %d columns: %q, want %q", room, got, want)
		}
	}
}
