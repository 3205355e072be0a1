package admission

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// ParseEpoch reads an epoch as it was written, and accepts nothing else.
func TestEpochIsReadAsWritten(t *testing.T) {
	for _, e := range []Epoch{
		{Pending: true, RunID: "1234", Word: "w", MaxTTL: time.Second, HasCounters: true, Name: "a"},
		{Pending: true, RunID: "1234", Word: "w", MaxTTL: time.Second, Name: "a:b c"},
		{RunID: "1234", Word: "w", MaxTTL: 30 * time.Second, Stage: "5-abc", Name: ""},
	} {
		got, err := ParseEpoch(e.String())
		if err != nil || got != e {
			t.Errorf("%q: got %+v and error %v, want %+v", e.String(), got, err, e)
		}
	}
	for _, text := range []string{
		"admitted", "admitted:1:w:1000:5-abc", "other:1:w:1000:5-abc:a", "admitted:1:w:x:5-abc:a",
		"admitted:1:w:0:5-abc:a", "admitted:1:w:-5:5-abc:a", "admitted:1:w:9999999999999999:5-abc:a",
	} {
		if e, err := ParseEpoch(text); err == nil || !strings.Contains(err.Error(), "same version everywhere") {
			t.Errorf("%q: got %+v and error %v, want an error that says what to do", text, e, err)
		}
	}
}

func FuzzEpoch(f *testing.F) {
	f.Add("admitted:1234:w:30000:5-abc:a")
	f.Add("pending:1234:w:1000:kept:a")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEpoch(text)
		if err != nil {
			return
		}
		again, err := ParseEpoch(e.String())
		if err != nil || again != e {
			t.Errorf("%q: %+v is written as %q and read as %+v (%v)", text, e, e.String(), again, err)
		}
	})
}

// The digest depends on the names of a node list, their number and the prefix, but not on their
// order.
func TestListDigest(t *testing.T) {
	list := func(names ...string) []string { return names }
	same := listDigest(list("a", "b", "c"), "redlock:")
	if got := listDigest(list("c", "a", "b"), "redlock:"); got != same {
		t.Errorf("another order: %s, want %s", got, same)
	}
	for _, other := range [][]string{list("a", "b"), list("a", "b", "d"), list("a", "b", "c", "d"), list("a\nb", "c")} {
		if got := listDigest(other, "redlock:"); got == same || listOf(got) == listOf(same) {
			t.Errorf("the list %v has the digest of another list", other)
		}
	}
	seen := map[string]bool{}
	for _, prefix := range []string{"redlock:", "", "r:", "redlock"} {
		digest := listDigest(list("a", "b", "c"), prefix)
		if seen[digest] || listOf(digest) != same {
			t.Errorf("with the prefix %q: %s; want a different digest of the same list", prefix, digest)
		}
		seen[digest] = true
	}
}

// A jump is reported only if the allowance cannot explain the readings of the two clocks.
func TestClockWatch(t *testing.T) {
	const s = time.Second
	sample := func(at, low, high time.Duration) ClockSample {
		return ClockSample{At: at, Low: low, High: high, Known: true}
	}
	for what, c := range map[string]struct {
		samples []ClockSample
		want    []time.Duration
	}{
		"none":                     {[]ClockSample{sample(1*s, 0, 1), sample(2*s, 0, 1)}, []time.Duration{0, 0}},
		"within 1 % and 2 ms":      {[]ClockSample{sample(1*s, 0, 0), sample(2*s, 12*time.Millisecond, 12*time.Millisecond)}, []time.Duration{0, 0}},
		"beyond":                   {[]ClockSample{sample(1*s, 0, 0), sample(2*s, 13*time.Millisecond, 14*time.Millisecond)}, []time.Duration{0, 13 * time.Millisecond}},
		"back":                     {[]ClockSample{sample(1*s, 0, 0), sample(2*s, -14*time.Millisecond, -13*time.Millisecond)}, []time.Duration{0, -13 * time.Millisecond}},
		"a reading that took long": {[]ClockSample{sample(1*s, 0, 0), sample(2*s, -s, 5*s)}, []time.Duration{0, 0}},
		"a slow slew": {
			[]ClockSample{sample(1*s, 0, 0), sample(2*s, 11*time.Millisecond, 11*time.Millisecond), sample(4*s, 33*time.Millisecond, 33*time.Millisecond)},
			[]time.Duration{0, 0, 33 * time.Millisecond},
		},
		"no answer": {[]ClockSample{sample(1*s, 0, 0), {}, sample(3*s, 0, 0)}, []time.Duration{0, 0, 0}},
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

// The number of samples is bounded, and they reach back as far as the window.
func TestClockWatchIsBounded(t *testing.T) {
	var w clockWatch
	const window = time.Hour
	for at := time.Duration(0); at < 3*window; at += time.Second {
		w.note(ClockSample{At: at, Known: true}, window)
		if n := len(w.samples); n > clockSamples+3 {
			t.Fatalf("%d samples are kept", n)
		}
		if oldest := at - w.samples[0].At; at > window && oldest < window-window/clockSamples {
			t.Fatalf("after %v the oldest sample is %v old", at, oldest)
		}
	}
}

// Two words show which one is later. Other texts do not.
func TestWordsTellTheTime(t *testing.T) {
	const now, second = int64(1_795_424_175_000), 1000
	word := newWord(now, "")
	if timeOf(word) != now || newWord(now, "") == word || len(word) != 12 {
		t.Errorf("%q has the time %d, want %d", word, timeOf(word), now)
	}
	for _, other := range []string{"", "w", "GVjlFAlj91k", "not base 64 !"} {
		if at := timeOf(other); at == now {
			t.Errorf("%q has the time %d", other, at)
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
