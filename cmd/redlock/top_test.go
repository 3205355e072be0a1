package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
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
	if len(first.Rates) != 0 || first.Status.Counts["grants"] != 7 {
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
}

// What cannot be written is told by the exit code, and not asked for again.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	a := withHello(shown)
	a[ipc.VerbWho] = says("- lock=job mode=exclusive host=web3 pid=12 user=cron since=10 held=3 nodes=5", "OK n=1")
	f := startFake(t, a)
	for _, args := range []string{"top --interval 100ms", "status", "status --json", "list", "who job", "who --json job", "watch job", "doctor", "version", "completion bash"} {
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
