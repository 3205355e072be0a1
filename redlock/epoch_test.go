package redlock

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is written is read as it was, and nothing else is taken for an epoch.
func TestEpochIsReadAsWritten(t *testing.T) {
	for _, e := range []epoch{
		{pending: true, runID: "1234", word: "w", maxTTL: time.Second, kept: true, name: "a"},
		{pending: true, runID: "1234", word: "w", maxTTL: time.Second, name: "a:b c"},
		{runID: "1234", word: "w", maxTTL: 30 * time.Second, digest: "5-abc", name: ""},
	} {
		got, err := parseEpoch(e.String())
		if err != nil || got != e {
			t.Errorf("%q: got %+v and error %v, want %+v", e.String(), got, err, e)
		}
	}
	for _, text := range []string{
		"admitted", "admitted:1:w:1000:5-abc", "other:1:w:1000:5-abc:a", "admitted:1:w:x:5-abc:a",
		"admitted:1:w:0:5-abc:a", "admitted:1:w:-5:5-abc:a", "admitted:1:w:9999999999999999:5-abc:a",
	} {
		if e, err := parseEpoch(text); err == nil || !strings.Contains(err.Error(), "same version everywhere") {
			t.Errorf("%q: got %+v and error %v, want an error that says what to do", text, e, err)
		}
	}
}

func FuzzEpoch(f *testing.F) {
	f.Add("admitted:1234:w:30000:5-abc:a")
	f.Add("pending:1234:w:1000:kept:a")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEpoch(text)
		if err != nil {
			return
		}
		again, err := parseEpoch(e.String())
		if err != nil || again != e {
			t.Errorf("%q: %+v is written as %q and read as %+v (%v)", text, e, e.String(), again, err)
		}
	})
}

// The order of a node list is nobody's business; names and their number are, and the prefix.
func TestListDigest(t *testing.T) {
	list := func(names ...string) []Node {
		var nodes []Node
		for _, name := range names {
			nodes = append(nodes, Node{Name: name, Address: "at " + name})
		}
		return nodes
	}
	same := listDigest(list("a", "b", "c"), "redlock:")
	if got := listDigest(list("c", "a", "b"), "redlock:"); got != same {
		t.Errorf("another order: %s, want %s", got, same)
	}
	for _, other := range [][]Node{list("a", "b"), list("a", "b", "d"), list("a", "b", "c", "d"), list("a\nb", "c")} {
		if got := listDigest(other, "redlock:"); got == same || listOf(got) == listOf(same) {
			t.Errorf("the list %v is taken for another", other)
		}
	}
	seen := map[string]bool{}
	for _, prefix := range []string{"redlock:", "", "r:", "redlock"} {
		digest := listDigest(list("a", "b", "c"), prefix)
		if seen[digest] || listOf(digest) != same {
			t.Errorf("with the prefix %q: %s; want one of its own, of the same list", prefix, digest)
		}
		seen[digest] = true
	}
}

// Counters and their fields are one to one.
func TestCounterFields(t *testing.T) {
	seen := map[counterField]bool{}
	for i := range maxCounters {
		field := fieldOf(i)
		if index, ok := counterIndex(string(field[:])); !ok || index != i || seen[field] {
			t.Fatalf("counter %d has the field %s, which is counter %d (%v, seen before: %v)", i, field, index, ok, seen[field])
		}
		seen[field] = true
	}
	for _, field := range []string{"", "a", "aaa", "a1", "Ab", "epoch"} {
		if index, ok := counterIndex(field); ok {
			t.Errorf("%q is taken for counter %d", field, index)
		}
	}
}

// A record is what it says, whatever the number.
func TestRecords(t *testing.T) {
	var counters [maxCounters]uint64
	counters[1], counters[1023] = 7, maxFence
	text := string(recordsOf(&counters))
	if !strings.HasPrefix(text, "aa0000000000000000ab0000000000000007") || !strings.HasSuffix(text, "779006099743113216") || len(text) != maxCounters*18 {
		t.Errorf("records of %d bytes: %.40s … %s", len(text), text, text[max(0, len(text)-20):])
	}
}

// No fencing token is believed that a double could not count.
func TestFenceRange(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "9006099743113216": true, "9006099743113217": false, "0": false, "-1": false, "x": false, "": false, "18446744073709551615": false,
	} {
		if _, ok := parseFence(text); ok != want {
			t.Errorf("%q is a fencing token: %v, want %v", text, ok, want)
		}
	}
	for n, want := range map[int64]bool{1: true, -1: true, 0: false, 1 << 53: false, -1 << 53: false, math.MinInt64: false} {
		if got := isFencedGrant(&Reply{Int: n}); got != want {
			t.Errorf("an answer of %d grants: %v, want %v", n, got, want)
		}
	}
}

// A jump is told only where no reading of the two clocks within the allowance is
// possible.
func TestClockWatch(t *testing.T) {
	const s = time.Second
	sample := func(at, low, high time.Duration) clockSample {
		return clockSample{at: at, low: low, high: high, known: true}
	}
	for what, c := range map[string]struct {
		samples []clockSample
		want    []time.Duration
	}{
		"none":                     {[]clockSample{sample(1*s, 0, 1), sample(2*s, 0, 1)}, []time.Duration{0, 0}},
		"within 1 % and 2 ms":      {[]clockSample{sample(1*s, 0, 0), sample(2*s, 12*time.Millisecond, 12*time.Millisecond)}, []time.Duration{0, 0}},
		"beyond":                   {[]clockSample{sample(1*s, 0, 0), sample(2*s, 13*time.Millisecond, 14*time.Millisecond)}, []time.Duration{0, 13 * time.Millisecond}},
		"back":                     {[]clockSample{sample(1*s, 0, 0), sample(2*s, -14*time.Millisecond, -13*time.Millisecond)}, []time.Duration{0, -13 * time.Millisecond}},
		"a reading that took long": {[]clockSample{sample(1*s, 0, 0), sample(2*s, -s, 5*s)}, []time.Duration{0, 0}},
		"a slow slew": {
			[]clockSample{sample(1*s, 0, 0), sample(2*s, 11*time.Millisecond, 11*time.Millisecond), sample(4*s, 33*time.Millisecond, 33*time.Millisecond)},
			[]time.Duration{0, 0, 33 * time.Millisecond},
		},
		"no answer": {[]clockSample{sample(1*s, 0, 0), {}, sample(3*s, 0, 0)}, []time.Duration{0, 0, 0}},
	} {
		var w clockWatch
		var got []time.Duration
		for _, one := range c.samples {
			jump, _ := w.note(one, 30*s)
			got = append(got, jump)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: jumps %v, want %v", what, got, c.want)
		}
	}
}

// The samples that are kept are bounded, and reach back as far as the window.
func TestClockWatchIsBounded(t *testing.T) {
	var w clockWatch
	const window = time.Hour
	for at := time.Duration(0); at < 3*window; at += time.Second {
		w.note(clockSample{at: at, known: true}, window)
		if n := len(w.samples); n > clockSamples+3 {
			t.Fatalf("%d samples are kept", n)
		}
		if oldest := at - w.samples[0].at; at > window && oldest < window-window/clockSamples {
			t.Fatalf("after %v the oldest sample is %v old", at, oldest)
		}
	}
}

// untilQuorum is when as many quarantines are over as are missing.
func TestUntilQuorum(t *testing.T) {
	left := func() []time.Duration { return []time.Duration{5, 1, 3} }
	for missing, want := range map[int]time.Duration{-1: 0, 0: 0, 1: 1, 2: 3, 3: 5, 4: 0} {
		if got := untilQuorum(left(), missing); got != want {
			t.Errorf("%d missing: %v, want %v", missing, got, want)
		}
	}
}

// Of two words it can be told which is the later one; of an earlier version's it cannot.
func TestWordsTellTheTime(t *testing.T) {
	const now, second = int64(1_795_424_175_000), 1000
	word := newWord(now, "")
	if timeOf(word) != now || newWord(now, "") == word || len(word) != 12 {
		t.Errorf("%q is of %d, want %d", word, timeOf(word), now)
	}
	for _, old := range []string{"", "w", "GVjlFAlj91k", "not base 64 !"} {
		if at := timeOf(old); at == now {
			t.Errorf("%q is of %d", old, at)
		}
	}
	for what, later := range map[string]string{
		"another second":    newWord(now+second, ""),
		"by a slower clock": newWord(now-second, word),
	} {
		if !isLater(later, word) || isLater(word, later) || isLater(word, word) || !isLater(word, "w") {
			t.Errorf("%s: %q is not later than %q", what, later, word)
		}
	}
}
