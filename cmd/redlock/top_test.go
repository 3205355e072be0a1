package main

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/top"
	"github.com/redlockd/redlockd/ipc"
)

func TestOutputThatEndsEarly(t *testing.T) {
	cmdtest.FailsWithoutRoom(t, "text", func(out io.Writer) error { return output.Show(out, false, nil, describe.LocksText(nil)) })
	cmdtest.FailsWithoutRoom(t, "JSON", func(out io.Writer) error { return output.Show(out, true, describe.LocksToJSON(nil), "") })
	cmdtest.FailsWithoutRoom(t, "one line", func(out io.Writer) error { return output.PrintJSONLine(out, 1) })
}

// shownByTop is the output of top for the fake daemon, without times.
const shownByTop = `TIME  redlockd 1.2 answered in TIME
NOT READY (a quorum is 3 of 4 nodes): no quorum for another 12s
connections 0, leases 2, waiters 1
lost 4

NODE  ADDRESS        STATE                RTT  WRITE
a     10.0.0.1:6379  ready                2ms  3ms
bb    unix:/b        quarantined for 12s  -    -
d     10.0.0.4:6379  quarantined for 13s  -    -
c     10.0.0.3:6379  down                 -    -

bb, d: restarted

c: redis-c: connection refused

LOCK       STATE    MODE          PID   USER  SINCE  TTL   FENCE  NOTE
job        waiting  exclusive     77    www   20ms   -     -
a%2Cb,job  waiting  shared        78    www   20ms   -     -
gpu        waiting  1 of 4 slots  79    www   20ms   -     -
job        held     exclusive     4121  cron  1m3s   7.4s  77     why, because
`

var timesOfTop = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[0-9.]+(µs|ms|s)$`)

// withHello adds a reply to HELLO with the daemon's version.
func withHello(a cmdtest.Replies) cmdtest.Replies {
	all := cmdtest.Replies{ipc.VerbHello: cmdtest.Reply("OK protocol=1 version=1.2 ttl=10000 min_ttl=100 max_ttl=30000 node_timeout=50")}
	for verb, answer := range a {
		all[verb] = answer
	}
	return all
}

func TestTop(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, withHello(shown))
	code, stdout, stderr := cmdtest.Run(t, f.Socket, "top", "--count", "1")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	head, rest, _ := strings.Cut(stdout, "\n")
	if got := timesOfTop.ReplaceAllString(head, "TIME") + "\n" + rest; got != shownByTop {
		t.Errorf("it shows\n%swant\n%s", got, shownByTop)
	}
	code, stdout, stderr = cmdtest.Run(t, f.Socket, "top", "-n", "2", "--interval", "100ms")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if n := strings.Count(stdout, "lost 4\n"); n != 1 {
		t.Errorf("%d pictures without rates, want 1:\n%s", n, stdout)
	}
	if n := strings.Count(stdout, "lost 4 (0.0/s)\n"); n != 1 {
		t.Errorf("%d pictures with rates, want 1:\n%s", n, stdout)
	}
}

func TestTopJSON(t *testing.T) {
	t.Parallel()
	grants := 0
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbList: cmdtest.Reply("OK n=0"), ipc.VerbStatus: func() []string {
		grants++
		switch grants {
		case 1:
			return []string{"OK n=0 nodes=0 quorum=1 spare=0 leases=1 grants=7"}
		case 2:
			return []string{"ERR INTERNAL : oops"}
		}
		return []string{"OK n=0 nodes=0 quorum=1 spare=0 leases=9 grants=17"}
	}})
	p := cmdtest.Start(t, cmdtest.RoleRedlock, f.Socket, "top", "--json", "--count", "3", "--interval", "100ms")
	var first, third top.FrameJSON
	var second top.ErrorJSON
	for _, to := range []any{&first, &second, &third} {
		if err := json.Unmarshal([]byte(p.ReadLine()), to); err != nil {
			t.Fatal(err)
		}
	}
	p.ExpectExit(0)
	if first.Rates == nil || len(first.Rates) != 0 || first.Status.Counts["grants"] != 7 {
		t.Errorf("at first %+v, want 7 grants and no rates", first)
	}
	if !strings.Contains(second.Error, "oops") {
		t.Errorf("then %+v, want oops", second)
	}
	want := 10 / third.Time.Sub(first.Time).Seconds()
	if got := third.Rates["grants"]; got < 0.9*want || got > 1.1*want || len(third.Rates) != 1 {
		t.Errorf("rates %v, want %.1f grants", third.Rates, want)
	}
}

func TestTopRefused(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply("ERR DENIED : rule web")})
	code, _, stderr := cmdtest.Run(t, f.Socket, "top")
	cmdtest.CheckExit(t, code, exit.Denied, stderr, "rule web")
	code, _, stderr = cmdtest.Run(t, f.Socket, "top", "--interval", "99ms")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "at least 100ms")
}

// If the daemon no longer answers, top shows the error in place of the status. The daemon's text
// cannot control the terminal.
func TestTopUnknown(t *testing.T) {
	t.Parallel()
	var status changing
	status.set(func() []string {
		status.set(cmdtest.Reply("ERR INTERNAL : oops \u202e"))
		return cmdtest.NothingHeld[ipc.VerbStatus]()
	})
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: status.answer, ipc.VerbList: cmdtest.NothingHeld[ipc.VerbList], ipc.VerbHello: cmdtest.Reply("OK protocol=1 version=%1B[2J")})
	code, stdout, stderr := cmdtest.Run(t, f.Socket, "top", "-n", "2", "--interval", "100ms")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	_, stdout, _ = strings.Cut(stdout, "  ") // the time
	const want = `redlockd "\x1b[2J" answered in TIME
ready (a quorum is 1 of 1 node): locks work, but no further node may fail
connections 0, leases 0, waiters 0
nothing has happened yet

NODE  ADDRESS  STATE  RTT  WRITE
a     :1       ready  -    -

no lock that you may see is held or waited for

TIME  "status: INTERNAL: oops \u202e`
	if got := timesOfTop.ReplaceAllString(stdout, "TIME"); !strings.HasPrefix(got, want) {
		t.Errorf("it shows\n%swant\n%s", got, want)
	}
}

// If redlock cannot write its output, the exit code says so, and it does not query the daemon
// again.
func TestUnwritableOutput(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	a := withHello(shown)
	a[ipc.VerbWho] = cmdtest.Reply("- lock=job mode=exclusive host=web3 pid=12 user=cron since=10 held=3 nodes=5", "OK n=1")
	a[ipc.VerbForce], a[ipc.VerbAdmit] = cmdtest.Reply(forcedWeb3), cmdtest.Reply("OK n=0")
	f := cmdtest.StartFake(t, a)
	for _, args := range []string{"force --yes job", "admit all", "top --interval 100ms", "status", "status --json", "list", "who job", "who --json job", "watch job", "doctor", "version", "completion bash"} {
		words := append([]string{"-c", `exec "$@" >/dev/full`, "sh", cmdtest.TestBinary}, strings.Fields(args)...)
		p := cmdtest.StartCommand(t, cmdtest.Command(t, "sh", words...), cmdtest.RoleRedlock, f.Socket)
		p.ExpectExit(exit.Internal)
		if said := p.Stderr(); !strings.Contains(said, "the output cannot be written") {
			t.Errorf("%s: stderr is %q", args, said)
		}
	}
}
