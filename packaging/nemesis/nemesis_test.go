package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain makes this program what the nemesis starts itself as.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	if len(args) > 0 && (args[0] == clientFlag || args[len(args)-1] == "-inside") {
		os.Exit(start(args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// nemesis makes a run and returns what it printed, and its exit code.
func nemesis(t *testing.T, args ...string) (string, int) {
	t.Helper()
	if os.Geteuid() != 0 || !hasPrograms() {
		t.Skip("needs root, ip and nft (Debian: apt-get install iproute2 nftables): it cuts networks and fills disks")
	}
	var stdout, stderr bytes.Buffer
	code := start(args, &stdout, &stderr)
	if code == exitUnavailable {
		t.Fatalf("the run could not be made: %s", stderr.String())
	}
	t.Logf("%s", &stdout)
	return stdout.String(), code
}

// duration is that of a run in the test suite, or of REDLOCKD_LONG.
func duration() string {
	if os.Getenv("REDLOCKD_LONG") != "" {
		return "1h"
	}
	return "60s"
}

func TestNoViolationOfRedlockd(t *testing.T) {
	out, code := nemesis(t, "-for", duration())
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	for _, kind := range faultKinds {
		line := lineWith(out, " "+kind.name+" (")
		if line == "" || strings.HasPrefix(strings.TrimSpace(line), "0 of") {
			t.Errorf("no fault %q changed anything: %q", kind.name, line)
		}
	}
}

func TestViolationsOfOthersAreFound(t *testing.T) {
	for name, args := range map[string][]string{
		"redlockd without quarantine": {"-admit"},
		"redsync":                     {"-contender", "redsync"},
	} {
		t.Run(name, func(t *testing.T) {
			_, code := nemesis(t, append(args, "-for", "60s", "-until-violation", "-nodes", "3", "-only", "flushed", "-gap", "30ms", "-names", "1")...)
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

// a is a hold of a lock from one millisecond to another.
func a(id int64, from, to, fence int) *hold {
	ms := func(n int) instant { return instant(n) * time.Millisecond }
	return &hold{ID: id, Names: []string{"x"}, Mode: exclusive, Fence: uint64(fence), Asked: ms(from - 1), Granted: ms(from), Until: ms(to + 100), Ended: ms(to), Free: ms(to)}
}

func with(h *hold, change func(*hold)) *hold {
	change(h)
	return h
}

func TestCheck(t *testing.T) {
	mode := func(m mode, slot string) func(*hold) { return func(h *hold) { h.Mode, h.Slot = m, slot } }
	tests := []struct {
		name  string
		holds []*hold
		want  string // part of the first violation; empty: none
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
		{name: "no tokens", holds: []*hold{a(1, 10, 20, 0), a(2, 20, 30, 0)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory()
			for _, one := range test.holds {
				if err := h.add(0, one.line()); err != nil {
					t.Fatal(err)
				}
			}
			found := check(h)
			matches := slices.ContainsFunc(found, func(v violation) bool { return strings.Contains(v.what, test.want) })
			if test.want == "" && len(found) > 0 || test.want != "" && !matches {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

// Two grants that overlap with a request in flight have an order, and porcupine finds it
// only if the second one was requested in time.
func TestLinearize(t *testing.T) {
	first, second := a(1, 10, 20, 1), a(2, 30, 40, 2)
	if what := linearize([]*hold{first, second}); what != "" {
		t.Errorf("one after the other: %s", what)
	}
	second.Fence = 1
	if linearize([]*hold{first, second}) == "" {
		t.Error("the same token twice is no lock with fencing tokens")
	}
	second.Fence = 2
	second.Asked, second.Granted = 12*time.Millisecond, 15*time.Millisecond
	if linearize([]*hold{first, second}) == "" {
		t.Error("a grant while another one is held is no lock")
	}
}
