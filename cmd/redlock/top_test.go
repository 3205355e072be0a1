package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
)

// shownByTop is what top shows of what the fake daemon shows, but for times.
const shownByTop = `TIME  redlockd 1.2 answered in TIME
NOT READY (a quorum is 3 of 4 nodes): no quorum for another 12s
connections 0, leases 2, waiters 1
lost 4

NODE  ADDRESS        STATE                RTT
a     10.0.0.1:6379  ready                2ms
bb    unix:/b        quarantined for 12s  -
d     10.0.0.4:6379  quarantined for 13s  -
c     10.0.0.3:6379  down                 -

bb, d: restarted

c: redis-c: connection refused

LOCK       STATE    MODE          PID   USER  SINCE  TTL   FENCE  NOTE
job        waiting  exclusive     77    www   20ms   -     -
a%2Cb,job  waiting  shared        78    www   20ms   -     -
gpu        waiting  1 of 4 slots  79    www   20ms   -     -
job        held     exclusive     4121  cron  1m3s   7.4s  77     why, because
`

var timesOfTop = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[0-9.]+(µs|ms|s)$`)

// withHello is what a daemon answers that says its version.
func withHello(a answers) answers {
	all := answers{ipc.VerbHello: says("OK protocol=1 version=1.2 ttl=10000 min_ttl=100 max_ttl=30000 node_timeout=50")}
	for verb, answer := range a {
		all[verb] = answer
	}
	return all
}

func TestTop(t *testing.T) {
	t.Parallel()
	f := startFake(t, withHello(shown))
	code, stdout, stderr := redlock(t, f.socket, "top", "--count", "1")
	check(t, code, 0, stderr, "")
	head, rest, _ := strings.Cut(stdout, "\n")
	if got := timesOfTop.ReplaceAllString(head, "TIME") + "\n" + rest; got != shownByTop {
		t.Errorf("it shows\n%swant\n%s", got, shownByTop)
	}
	code, stdout, stderr = redlock(t, f.socket, "top", "-n", "2", "--interval", "100ms")
	check(t, code, 0, stderr, "")
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
	f := startFake(t, answers{ipc.VerbList: says("OK n=0"), ipc.VerbStatus: func() []string {
		grants++
		switch grants {
		case 1:
			return []string{"OK n=0 nodes=0 quorum=1 spare=0 leases=1 grants=7"}
		case 2:
			return []string{"ERR INTERNAL : oops"}
		}
		return []string{"OK n=0 nodes=0 quorum=1 spare=0 leases=9 grants=17"}
	}})
	p := start(t, roleRedlock, f.socket, "top", "--json", "--count", "3", "--interval", "100ms")
	var first, third topJSON
	var second topErrorJSON
	for _, to := range []any{&first, &second, &third} {
		if err := json.Unmarshal([]byte(p.line()), to); err != nil {
			t.Fatal(err)
		}
	}
	p.ends(0)
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
	f := startFake(t, answers{ipc.VerbStatus: says("ERR DENIED : rule web")})
	code, _, stderr := redlock(t, f.socket, "top")
	check(t, code, exitDenied, stderr, "rule web")
	code, _, stderr = redlock(t, f.socket, "top", "--interval", "99ms")
	check(t, code, exitUsage, stderr, "at least 100ms")
}

// Where the daemon does not answer any more, that is in the place of its picture. Its words
// control no terminal.
func TestTopUnknown(t *testing.T) {
	t.Parallel()
	var status changing
	status.set(func() []string {
		status.set(says("ERR INTERNAL : oops \u202e"))
		return nothing[ipc.VerbStatus]()
	})
	f := startFake(t, answers{ipc.VerbStatus: status.answer, ipc.VerbList: nothing[ipc.VerbList], ipc.VerbHello: says("OK protocol=1 version=%1B[2J")})
	code, stdout, stderr := redlock(t, f.socket, "top", "-n", "2", "--interval", "100ms")
	check(t, code, 0, stderr, "")
	_, stdout, _ = strings.Cut(stdout, "  ") // the time
	const want = `redlockd "\x1b[2J" answered in TIME
ready (a quorum is 1 of 1 node): locks work, but no further node may fail
connections 0, leases 0, waiters 0
nothing has happened yet

NODE  ADDRESS  STATE  RTT
a     :1       ready  -

nothing is held or waited for, as far as you may see

TIME  "status: INTERNAL: oops \u202e`
	if got := timesOfTop.ReplaceAllString(stdout, "TIME"); !strings.HasPrefix(got, want) {
		t.Errorf("it shows\n%swant\n%s", got, want)
	}
}

// It looks as often as it is told to, and no more.
func TestTopInterval(t *testing.T) {
	f := startFake(t, nothing)
	t.Setenv(socketOfTests, f.socket)
	synctest.Test(t, func(t *testing.T) {
		var shown []time.Duration
		start := time.Now()
		top := &top{every: durationFlag(time.Minute), count: 3, out: writing(func() error {
			shown = append(shown, time.Since(start))
			return nil
		})}
		if err := top.run(t.Context()); err != nil || !slices.Equal(shown, []time.Duration{0, time.Minute, 2 * time.Minute}) {
			t.Errorf("%v; shown after %v, want one at once, and one after each minute", err, shown)
		}
	})
}

// Who waits comes first, as there may be no room for all.
func TestLongestFirst(t *testing.T) {
	p := &picture{entries: []client.Entry{
		{PID: 5, Since: time.Hour}, {PID: 3, Since: time.Second, Waits: true}, {PID: 6, Since: 2 * time.Second},
		{PID: 1, Since: time.Minute, Waits: true}, {PID: 2, Since: time.Minute, Waits: true}, {PID: 4, Since: 2 * time.Hour},
	}}
	for i, e := range p.longestFirst() {
		if e.PID != i+1 {
			t.Errorf("shown is %+v, want 1 to 6", p.longestFirst())
			break
		}
	}
}

// What cannot be written is told by the exit code, and not asked for again.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	a := withHello(shown)
	a[ipc.VerbWho] = says("- lock=job mode=exclusive host=web3 pid=12 user=cron since=10 held=3 nodes=5", "OK n=1")
	a[ipc.VerbForce], a[ipc.VerbAdmit] = says(forcedWeb3), says("OK n=0")
	f := startFake(t, a)
	for _, args := range []string{"force --yes job", "admit all", "top --interval 100ms", "status", "status --json", "list", "who job", "who --json job", "watch job", "doctor", "version", "completion bash"} {
		words := append([]string{"-c", `exec "$@" >/dev/full`, "sh", testBinary}, strings.Fields(args)...)
		p := startCommand(t, command(t, "sh", words...), roleRedlock, f.socket)
		p.ends(exitInternal)
		if said := p.said(); !strings.Contains(said, "the output cannot be written") {
			t.Errorf("%s: stderr is %q", args, said)
		}
	}
}

// Of what is shown no part is missing without a word, wherever there is no room for more.
func TestOutputThatEndsEarly(t *testing.T) {
	status := *statusOf3
	status.Nodes = []client.Node{{Name: "a", State: "down", Reason: "no route"}, {Name: "b", State: "down", Reason: "refused"}}
	p := &picture{status: &status}
	for what, show := range map[string]func(io.Writer) error{
		"status":   func(out io.Writer) error { return printStatus(out, &status, false) },
		"top":      p.print,
		"list":     func(out io.Writer) error { return printEntries(out, nil) },
		"who":      func(out io.Writer) error { return printHolders(out, nil) },
		"bench":    (&bench{status: &status, rows: make([]row, 2)}).print,
		"doctor":   func(out io.Writer) error { return printFindings(out, []finding{{}, {}}, false) },
		"as JSON":  func(out io.Writer) error { return printFindings(out, nil, true) },
		"one line": func(out io.Writer) error { return printJSONLine(out, 1) },
	} {
		var all bytes.Buffer
		if err := show(&all); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for room := range all.Len() {
			if f, is := errors.AsType[*failure](show(&narrow{room})); !is || f.code != exitInternal {
				t.Errorf("%s: with room for %d of %d bytes the failure is %v, want exit code 70", what, room, all.Len(), f)
			}
		}
	}
}

// narrow is an output with room for so many bytes.
type narrow struct{ room int }

func (n *narrow) Write(text []byte) (int, error) {
	if n.room -= len(text); n.room < 0 {
		return 0, errors.New("no space left")
	}
	return len(text), nil
}

// That a restart would lose what is held is not kept from programs, nor why.
func TestStatusJSONTellsUnnoted(t *testing.T) {
	for want, status := range map[string]client.Status{
		`"counts":null}`:                                  {},
		`"counts":null,"unnoted":true}`:                   {Unnoted: true},
		`"counts":null,"unnoted":true,"table":"removed"}`: {Unnoted: true, Table: "removed"},
	} {
		got, err := json.Marshal(statusJSONOf(&status))
		if err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("%s, %v, want it to end in %s", got, err, want)
		}
	}
}

func TestRates(t *testing.T) {
	at := func(seconds int, counts map[string]int64) *picture {
		return &picture{at: time.Unix(int64(seconds), 0), status: &client.Status{Counts: counts}}
	}
	before := at(10, map[string]int64{"leases": 3, "grants": 100, "lost": 5})
	now := at(12, map[string]int64{"leases": 9, "grants": 105, "lost": 2, "repairs": 4})
	now.since(before)
	for name, want := range map[string]float64{"grants": 2.5, "lost": 1 /* redlockd began anew */, "repairs": 2} {
		if got := now.rates[name]; got != want {
			t.Errorf("%s: %v/s, want %v", name, got, want)
		}
	}
	if got := now.totals(); got != "grants 105 (2.5/s), lost 2 (1.0/s), repairs 4 (2.0/s)" {
		t.Errorf("shown are %q", got)
	}
}

func TestPaint(t *testing.T) {
	var out bytes.Buffer
	screen{5, 3}.paint(&out, []byte("äöüß long\nb\nnot shown\n"), true)
	want := clearScreen + cursorHome + "äöüß " + clearLine + "\nb" + clearLine + "\n" + clearBelow
	if got := out.String(); got != want {
		t.Errorf("painted %q, want %q", got, want)
	}
}

func TestFine(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "-", 143256: "143µs", 1243256: "1.24ms", 12432560: "12.4ms", 2345678901: "2.35s", 999: "999ns"} {
		if got := fine(d); got != want {
			t.Errorf("fine(%d) = %s, want %s", d, got, want)
		}
	}
}
