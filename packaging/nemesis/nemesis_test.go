package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// programs is the directory with the nemesis and redlockd, which are built once for all runs.
var programs string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nemesis")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	return m.Run()
}

// built builds both programs without the race detector. With it, the clients of a run would take
// half of the processors from the nodes and daemons. The tests themselves keep it.
var built = sync.OnceValue(func() error {
	if _, err := buildDaemon(context.Background(), programs, ""); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-race=false", "-trimpath", "-o", filepath.Join(programs, "nemesis"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the nemesis: %w: %s", err, text)
	}
	return nil
})

// nemesis makes a run and returns its output and its exit code.
func nemesis(t *testing.T, args ...string) (string, int) {
	t.Helper()
	if os.Geteuid() != 0 || !hasPrograms() {
		t.Skip("needs root, ip and nft (Debian: apt-get install iproute2 nftables): it cuts networks and fills disks")
	}
	if err := built(); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	again := exec.Command(filepath.Join(programs, "nemesis"), append(args, "-redlockd", filepath.Join(programs, "redlockd"))...)
	again.Stdout, again.Stderr = &stdout, &stderr
	again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var exit *exec.ExitError
	if err := again.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := again.ProcessState.ExitCode()
	if code != 0 && code != exitViolation {
		t.Fatalf("the run could not be made: exit code %d: %s", code, stderr.String())
	}
	t.Logf("%s", &stdout)
	return stdout.String(), code
}

func TestNoViolationOfRedlockd(t *testing.T) {
	var unseen []string // kinds of faults that changed nothing yet
	for _, kind := range faultKinds {
		if (!kind.slow || effort.IsLong()) && kind.possible(&world{options: options{tls: true}, network: &network{}, nodes: make([]*node, 5), daemons: []*daemon{{mounted: true}}}) {
			unseen = append(unseen, kind.name)
		}
	}
	for seed := 1; seed == 1 || len(unseen) > 0 && seed <= 5 && !t.Failed(); seed++ { // a busy machine has few grants that a fault could hit
		unseen = withoutSeen(unseen, withoutViolation(t, seed))
	}
	if len(unseen) > 0 {
		t.Errorf("no fault of these kinds changed anything: %q", unseen)
	}
}

// withoutViolation makes a run and checks its history again. It returns the report.
func withoutViolation(t *testing.T, seed int) string {
	t.Helper()
	record := filepath.Join(t.TempDir(), "history.jsonl.gz")
	out, code := nemesis(t, "-for", fmt.Sprintf("%ds", effort.Rounds(30, 3600)), "-seed", fmt.Sprint(seed), "-tls", "-record", record)
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if line := lineWith(out, "| the store compares tokens |"); line == "" || strings.HasPrefix(line, "| the store compares tokens | 0 |") {
		t.Errorf("no work under the locks: %q", line)
	}
	if lineWith(out, "after the last fault, all") == "" {
		t.Error("nothing is said of the time after the last fault")
	}
	if again, code := checked(t, record); code != 0 || !strings.Contains(again, "0 violations") {
		t.Errorf("the recorded history: exit code %d, %s", code, again)
	}
	return out
}

// The nodes are changed, back and again, with all that operators and hosts do wrong meanwhile.
func TestNoViolationOfChanges(t *testing.T) {
	unseen := []string{joinedAgain}
	for _, kind := range faultKinds {
		if kind.target >= allDaemons {
			unseen = append(unseen, kind.name)
		}
	}
	for seed := 1; len(unseen) > 0 && seed <= 5 && !t.Failed(); seed++ { // on a busy machine, a change may outlast the run
		out, code := nemesis(t, "-for", fmt.Sprintf("%ds", effort.Rounds(75, 600)), "-seed", fmt.Sprint(seed), "-only", "change", "-nodes", "3", "-clients", "3", "-workers", "4")
		if code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		unseen = withoutSeen(unseen, out)
	}
	if len(unseen) > 0 {
		t.Errorf("no fault of these kinds changed anything: %q", unseen)
	}
}

// withoutSeen returns the kinds of faults that changed nothing, by the report of a run.
func withoutSeen(kinds []string, out string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool {
		line := lineWith(out, "| "+kind+" |")
		return line != "" && !strings.HasSuffix(strings.TrimSpace(line), "| 0 |")
	})
}

// Durable nodes vote at once after a power loss: they have all votes that they answered.
func TestNoViolationOfDurableNodes(t *testing.T) {
	out, code := nemesis(t, "-for", "5s", "-durable", "-only", "power")
	if line := lineWith(out, "| node loses power |"); code != 0 || line == "" || strings.HasSuffix(strings.TrimSpace(line), "| 0 |") {
		t.Errorf("exit code %d, %q; want 0, and nodes that lost power", code, line)
	}
}

// Clocks that run 0.9 % fast or slow are within the promise. Usually some nodes are fast and others slow.
func TestNoViolationWithClockRates(t *testing.T) {
	all := []string{"1.009,0.991", "1.009", "0.991"}
	for _, rates := range all[:effort.Rounds(1, len(all))] {
		if out, code := nemesis(t, "-for", "3s", "-rates", rates); code != 0 {
			t.Errorf("rates %s: exit code %d, want 0: %s", rates, code, out)
		}
	}
}

// Clients of redsync want the same locks. They have no tokens, and exclude redlockd's clients.
func TestNoViolationBesideRedsync(t *testing.T) {
	record := filepath.Join(t.TempDir(), "history.jsonl.gz")
	if out, code := nemesis(t, "-for", "10s", "-rivals", "3", "-record", record); code != 0 {
		t.Errorf("exit code %d, want 0: %s", code, out)
	}
	_, h, err := replay(record)
	if err != nil {
		t.Fatal(err)
	}
	both := 0
	for _, of := range h.names {
		if slices.ContainsFunc(of.holds, func(one *hold) bool { return one.Fence == 0 }) && slices.ContainsFunc(of.holds, func(one *hold) bool { return one.Fence > 0 }) {
			both++
		}
	}
	if both == 0 {
		t.Errorf("redlockd and redsync held none of %d locks in turn", len(h.names))
	}
}

func TestViolationsOfOthersAreFound(t *testing.T) {
	for name, args := range map[string][]string{
		"redlockd without quarantine": {"-admit"},
		"redsync":                     {"-contender", "redsync"},
	} {
		t.Run(name, func(t *testing.T) {
			_, code := nemesis(t, append(args, "-for", "2m", "-until-violation", "-nodes", "3", "-only", "flushed", "-gap", "30ms", "-names", "1")...)
			if code != exitViolation {
				t.Errorf("exit code %d, want %d: nodes that forget locks and vote at once let two hold one lock", code, exitViolation)
			}
		})
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// a returns a hold of a lock from one millisecond to another.
func a(id int64, from, to, fence int) *hold {
	ms := func(n int) instant { return instant(n) * time.Millisecond }
	return &hold{ID: id, Names: []string{"x"}, Mode: exclusive, Fence: uint64(fence), Asked: ms(from - 1), Granted: ms(from), Until: ms(to + 100), Ended: ms(to)}
}

// force returns a FORCE of the lock x from one millisecond to another.
func force(from, to int) excuse {
	return excuse{Name: "x", From: time.Duration(from) * time.Millisecond, To: time.Duration(to) * time.Millisecond}
}

func with(h *hold, change func(*hold)) *hold {
	change(h)
	return h
}

func TestCheck(t *testing.T) {
	mode := func(m mode, slot string) func(*hold) { return func(h *hold) { h.Mode, h.Slot = m, slot } }
	tests := []struct {
		name    string
		holds   []*hold
		excused []excuse
		want    string // must be contained in a violation; empty: none
	}{
		{name: "one after the other", holds: []*hold{a(1, 10, 20, 1), a(2, 20, 30, 2)}},
		{name: "two holders", holds: []*hold{a(1, 10, 20, 1), a(2, 19, 30, 2)}, want: "two holders for 1ms"},
		{name: "holder past its deadline", holds: []*hold{with(a(1, 10, 20, 1), func(h *hold) { h.Until = h.Granted + 5*time.Millisecond }), a(2, 16, 30, 2)}},
		{name: "holder that never said how it ended", holds: []*hold{with(a(1, 10, 20, 1), func(h *hold) { h.Ended = 0 }), a(2, 119, 130, 2)}, want: "two holders"},
		{name: "two readers", holds: []*hold{with(a(1, 10, 20, 1), mode(shared, "")), with(a(2, 12, 30, 1), mode(shared, ""))}},
		{name: "reader and writer", holds: []*hold{with(a(1, 10, 20, 1), mode(shared, "")), a(2, 12, 30, 2)}, want: "two holders"},
		{name: "two slots", holds: []*hold{with(a(1, 10, 20, 1), mode(slots, "1")), with(a(2, 12, 30, 1), mode(slots, "2"))}},
		{name: "one slot twice", holds: []*hold{with(a(1, 10, 20, 1), mode(slots, "1")), with(a(2, 12, 30, 2), mode(slots, "1"))}, want: "two holders"},
		{name: "three slots", holds: []*hold{with(a(1, 10, 20, 1), mode(slots, "1")), with(a(2, 12, 30, 2), mode(slots, "2")), with(a(3, 13, 30, 2), mode(slots, "3"))}, want: "3 holders of 2 slots"},
		{name: "a token twice", holds: []*hold{a(1, 10, 20, 1), a(2, 20, 30, 1)}, want: "same token twice"},
		{name: "a token that shrinks", holds: []*hold{a(1, 10, 20, 2), a(2, 30, 40, 1)}, want: "does not grow"},
		{name: "a reader's token below a writer's", holds: []*hold{a(1, 10, 20, 2), with(a(2, 30, 40, 1), mode(shared, ""))}, want: "does not grow"},
		{name: "two holders after FORCE", holds: []*hold{a(1, 10, 30, 1), a(2, 21, 40, 2)}, excused: []excuse{force(20, 22)}},
		{name: "two holders before FORCE", holds: []*hold{a(1, 10, 30, 1), a(2, 15, 40, 2)}, excused: []excuse{force(20, 22)}, want: "two holders"},
		{name: "two holders requested after FORCE", holds: []*hold{a(1, 30, 40, 1), a(2, 35, 45, 2)}, excused: []excuse{force(20, 22)}, want: "two holders"},
		{name: "two holders after FORCE of another lock", holds: []*hold{a(1, 10, 30, 1), a(2, 21, 40, 2)}, excused: []excuse{{Name: "y", To: never}}, want: "two holders"},
		{name: "a token that shrinks after FORCE", holds: []*hold{a(1, 10, 30, 2), a(2, 21, 40, 1)}, excused: []excuse{force(20, 22)}, want: "does not grow"},
		{name: "two holders after a clock stepped", holds: []*hold{a(1, 10, 30, 1), a(2, 21, 40, 2)}, excused: []excuse{{To: 22 * time.Millisecond}}},
		{name: "a token that shrinks after a clock stepped", holds: []*hold{a(1, 10, 30, 2), a(2, 21, 40, 1)}, excused: []excuse{{To: 22 * time.Millisecond}}},
		{name: "a token twice after a clock stepped", holds: []*hold{a(1, 10, 30, 2), a(2, 21, 40, 2)}, excused: []excuse{{To: 22 * time.Millisecond}}, want: "same token twice"},
		{name: "no tokens", holds: []*hold{a(1, 10, 20, 0), a(2, 20, 30, 0)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			found := check("x", test.holds, test.excused)
			matches := slices.ContainsFunc(found, func(v violation) bool { return strings.Contains(v.what, test.want) })
			if test.want == "" && len(found) > 0 || test.want != "" && !matches {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

// Two grants that overlap with a request in flight can be ordered, and porcupine finds the order
// only if the second one was requested in time.
func TestLinearize(t *testing.T) {
	first, second := a(1, 10, 20, 1), a(2, 30, 40, 2)
	if what := linearize([]*hold{first, second}, nil); what != "" {
		t.Errorf("one after the other: %s", what)
	}
	second.Fence = 1
	if linearize([]*hold{first, second}, nil) == "" {
		t.Error("the same token twice is no lock with fencing tokens")
	}
	second.Fence = 0
	if what := linearize([]*hold{first, second, a(3, 50, 60, 2)}, nil); what != "" {
		t.Errorf("a client without tokens between two with them: %s", what)
	}
	second.Fence = 2
	second.Asked, second.Granted = 12*time.Millisecond, 15*time.Millisecond
	if linearize([]*hold{first, second}, nil) == "" {
		t.Error("a grant while another one is held is no lock")
	}
}

// A lock that is no longer used is checked once, and then forgotten.
func TestIdleLocksAreForgotten(t *testing.T) {
	h := newHistory()
	add := func(client int, one *hold, at instant) {
		t.Helper()
		if err := h.add(client, one.json(), at); err != nil {
			t.Fatal(err)
		}
	}
	first, second := a(1, 10, 20, 1), a(2, 15, 30, 2)
	for _, one := range []*hold{first, second} {
		ended := one.Ended
		one.Ended = 0
		add(7, one, one.Granted)
		one.Ended, one.Reason = ended, "released"
	}
	if h.open[7] != 2 || h.grants[exclusive] != 2 {
		t.Errorf("%d open, %d grants, want 2 and 2", h.open[7], h.grants[exclusive])
	}
	add(7, first, first.Ended)
	add(7, second, second.Ended)
	if h.open[7] != 0 || h.reasons["released"] != 2 {
		t.Errorf("%d open, %d released, want 0 and 2", h.open[7], h.reasons["released"])
	}
	if idle := h.takeIdle(second.Ended + idleNames - 1); len(idle) > 0 {
		t.Errorf("%d locks are complete too early", len(idle))
	}
	idle := h.takeIdle(second.Ended + idleNames)
	if len(idle) != 1 || len(idle[0].holds) != 2 || len(checkAll(idle)) == 0 {
		t.Errorf("complete: %v, want the two holds of one lock, and a violation", idle)
	}
	if len(h.holds)+len(h.names) > 0 {
		t.Errorf("%d holds of %d locks are still there", len(h.holds), len(h.names))
	}
	if add(7, second, second.Ended); h.tooLate != 1 {
		t.Errorf("%d lines too late, want 1", h.tooLate)
	}
}

// A killed client held its locks until the kill, and no longer.
func TestKilledClientHoldsNothing(t *testing.T) {
	h := newHistory()
	one := a(1, 10, 20, 1)
	one.Ended = 0
	for client := range 2 {
		if err := h.add(client, one.json(), one.Granted); err != nil {
			t.Fatal(err)
		}
	}
	at := 15 * time.Millisecond
	if held := h.clientDied(0, at); held != 1 {
		t.Errorf("%d locks ended with the client, want 1", held)
	}
	if got := h.holds[holdKey{0, 1}]; got.end() != at || got.Reason != "client killed" {
		t.Errorf("the killed client held it until %v (%s), want %v", got.end(), got.Reason, at)
	}
	if got := h.holds[holdKey{1, 1}]; got.Ended != 0 {
		t.Error("the hold of the other client ended, too")
	}
}

// A run of a million grants has locks with some thousand grants each. Their check must not take
// longer than the run.
func TestCheckOfManyGrants(t *testing.T) {
	var holds []*hold
	for i := range 4000 {
		one := a(int64(i), 10*i, 10*i+10, i+1)
		one.Asked = max(0, one.Granted-3*time.Second) // hundreds of requests wait at a time
		holds = append(holds, one)
	}
	started := time.Now()
	for range 2 { // the second time in the worst order
		if found := check("x", holds, nil); len(found) > 0 {
			t.Fatal(found)
		}
		slices.Reverse(holds)
	}
	t.Logf("measured: the check of %d grants takes %v", len(holds), time.Since(started)/2)
}
