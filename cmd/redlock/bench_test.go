package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/ipc"
)

// It is not parallel, as are others that load the machine: what others test bears
// only so much.
func TestBench(t *testing.T) {
	_, socket := startDaemon(t)
	code, stdout, stderr := redlock(t, socket, "bench", "--duration", "2s", "--workers", "4", "--json")
	check(t, code, 0, stderr, "")
	var got benchJSON
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Nodes != 5 || got.Quorum != 3 || got.Workers != 4 || got.Version == "" {
		t.Errorf("measured was %+v, want 5 nodes and 4 workers", got)
	}
	var names []string
	for _, r := range got.Rows {
		names = append(names, r.Row)
		if r.Done == 0 || r.PerSecond <= 0 || r.P50 <= 0 || r.P50 > r.P90 || r.P90 > r.P99 || r.P99 > r.Max || r.Max > patience.Microseconds() {
			t.Errorf("%+v cannot be", r)
		}
	}
	if !slices.Equal(names, []string{"ping", "lock", "unlock", "throughput", "hand-over"}) {
		t.Errorf("measured are %q", names)
	}
	nothingIsLeft(t, socket)
}

func nothingIsLeft(t *testing.T, socket string) {
	t.Helper()
	if _, stdout, _ := redlock(t, socket, "list"); stdout != "nothing is held or waited for, as far as you may see\n" {
		t.Errorf("it leaves\n%s", stdout)
	}
}

// A signal ends it in the middle.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	p := start(t, roleRedlock, socket, "bench", "--duration", "3h")
	for stdout := ""; !strings.Contains(stdout, "connections 2"); {
		_, stdout, _ = redlock(t, socket, "status")
	}
	p.signal(syscall.SIGINT)
	p.ends(exitSignal + int(syscall.SIGINT))
}

// What is locked, or about to be, is given back before a part returns, however it ends.
func TestBenchLeavesNothing(t *testing.T) {
	_, socket := startDaemon(t)
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &bench{c: c, workers: 8, prefix: "mine/"}
	for _, p := range b.parts()[1:] {
		ctx, cancel := context.WithCancelCause(t.Context())
		before := grantsOf(t, c)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer cancel(exit(130))
			for grantsOf(t, c) < before+3 {
			}
		})
		err := b.part(ctx, p, patience)
		wg.Wait()
		if f, _ := errors.AsType[*failure](err); f == nil || f.code != 130 {
			t.Errorf("%s: it ended with %v, want exit code 130", p.name, err)
		}
		nothingIsLeft(t, socket)
	}
}

// grantsOf is how many there have been; when the daemon is gone, more than enough.
func grantsOf(t *testing.T, c *client.Client) int64 {
	status, err := c.Status(t.Context())
	if err != nil {
		t.Error(err)
		return math.MaxInt64
	}
	return status.Counts["grants"]
}

func TestBenchRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers answers
		args    []string
		code    int
		text    string
	}{
		{nothing, []string{"--workers", "0"}, exitUsage, "1 to 1000"},
		{nothing, []string{"--workers", "1001"}, exitUsage, "1 to 1000"},
		{nothing, []string{"--duration", "99ms"}, exitUsage, "at least 100ms"},
		{shown, nil, exitUnavailable, "no quorum for another 12s"},
		{answers{ipc.VerbStatus: nothing[ipc.VerbStatus], ipc.VerbLock: says("ERR NOQUORUM : a: down")}, nil, exitUnavailable, "a: down"},
		{answers{ipc.VerbStatus: nothing[ipc.VerbStatus], ipc.VerbLock: grants(time.Minute), ipc.VerbUnlock: says("OK lock=job"), ipc.VerbPing: says("ERR LIMIT : requests_per_second")},
			nil, exitDenied, "requests_per_second"},
	} {
		f := startFake(t, test.answers)
		code, stdout, stderr := redlock(t, f.socket, append([]string{"bench"}, test.args...)...)
		check(t, code, test.code, stderr, test.text)
		if stdout != "" {
			t.Errorf("%v: stdout is %q, want nothing", test.args, stdout)
		}
	}
}

// Its names are its own, below a prefix that access rules may want: who else measures has others.
func TestBenchNames(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"redlock-bench/", "mine/"} {
		f := startFake(t, answers{ipc.VerbStatus: nothing[ipc.VerbStatus], ipc.VerbLock: says("ERR DENIED : rule web")})
		code, _, stderr := redlock(t, f.socket, "bench", "--prefix", prefix)
		check(t, code, exitDenied, stderr, "rule web")
		name := f.read(ipc.VerbLock).Names[0]
		if own := regexp.MustCompile("^" + prefix + "[A-Z2-7]{8}/free$"); !own.MatchString(name) {
			t.Errorf("it locks %q, want %v", name, own)
		}
	}
}

func TestBenchBounds(t *testing.T) {
	for _, b := range []bench{{length: durationFlag(leastBench), workers: 1}, {length: durationFlag(time.Hour), workers: mostWorkers}} {
		if err := b.check(); err != nil {
			t.Errorf("%v and %d workers: %v", time.Duration(b.length), b.workers, err)
		}
	}
}

func TestBenchTable(t *testing.T) {
	f := row{name: "lock", workers: 1, took: 2 * time.Second}
	for i := range 1000 {
		f.times.add(time.Duration(i+1) * time.Microsecond)
	}
	b := &bench{rows: []row{f, {name: "unlock", workers: 64, took: time.Second}}, workers: 64}
	b.hello.Version, b.status = "1.2", statusOf3
	var out strings.Builder
	if err := b.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `redlockd 1.2, 3 nodes, a quorum is 2

WHAT    WORKERS  PER S  P50    P90    P99  MAX
lock    1        500    502µs  909µs  1ms  1ms
unlock  64       0      -      -      -    -
`
	if out.String() != want {
		t.Errorf("it prints\n%swant\n%s", out.String(), want)
	}
}

// Quantiles are right to 2 %, over the whole range.
func TestHistogram(t *testing.T) {
	var h, other histogram
	if h.quantile(0.5) != 0 {
		t.Errorf("the median of nothing is %v", h.quantile(0.5))
	}
	for i := range 10_000 {
		to := &h
		if i%2 == 0 {
			to = &other
		}
		to.add(time.Duration(i+1) * 100 * time.Microsecond)
	}
	h.merge(&other)
	for share, want := range map[float64]time.Duration{0.0001: 100 * time.Microsecond, 0.5: 500 * time.Millisecond, 0.9: 900 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.quantile(share); got < want || got > want*102/100 {
			t.Errorf("quantile %v is %v, want %v", share, got, want)
		}
	}
	h.add(100 * time.Hour)
	if h.n != 10_001 || h.most != 100*time.Hour || h.quantile(1) < time.Hour {
		t.Errorf("with one of 100 h: %d, the longest %v, quantile 1 is %v", h.n, h.most, h.quantile(1))
	}
	h.add(0) // as a coarse clock has it
	if h.n != 10_002 || h.most != 100*time.Hour || h.quantile(0.00001) > time.Microsecond {
		t.Errorf("with one of 0: %d, the longest %v, the shortest %v", h.n, h.most, h.quantile(0.00001))
	}
}

func TestProgressLine(t *testing.T) {
	p := newProgress(nil, 4*time.Second)
	p.begin("throughput", 2, 4)
	for passed, want := range map[time.Duration]string{
		0:               "[                              ]   0% 3/4 throughput",
		3 * time.Second: "[######################        ]  75% 3/4 throughput",
		5 * time.Second: "[##############################] 100% 3/4 throughput",
	} {
		if got := p.line(passed); got != want {
			t.Errorf("after %v %q, want %q", passed, got, want)
		}
	}
	p.end()
}
