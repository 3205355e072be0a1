package redlock

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Of a node's hash the counters alone are taken, where they can be ones, and the largest of
// each. One that ends early is read as far as it goes.
func TestRaiseCounters(t *testing.T) {
	field := func(index int) string { f := script.FieldOf(index); return string(f[:]) }
	var fields []Reply
	for _, text := range []string{
		field(1), "5", field(2), "7", field(1), "4", "keeps", "9", "!!", "9", "epoch", "admitted",
		field(2), strconv.FormatUint(script.MaxFence+1, 10), field(3), "x", field(script.MaxCounters - 1), "1", field(2),
	} {
		fields = append(fields, Reply{Str: text})
	}
	counters := admission.Counters{2: 6, 3: 3}
	raiseCounters(&counters, fields)
	if want := (admission.Counters{1: 5, 2: 7, 3: 3, script.MaxCounters - 1: 1}); counters != want {
		t.Errorf("got %v, want %v", counters, want)
	}
}

// No call is refused much sooner than its own not-after for being in one command with
// others, whichever of them was there first.
func TestSpansKeepNotAfter(t *testing.T) {
	const ms = time.Millisecond
	l := &lane{timing: newTiming(50 * ms)}
	for name, c := range map[string]struct {
		notAfters []time.Duration
		want      int
	}{
		"together":             {[]time.Duration{50 * ms, 55 * ms, 60 * ms}, 3},
		"one later":            {[]time.Duration{50 * ms, 55 * ms, 61 * ms}, 2},
		"one sooner":           {[]time.Duration{50 * ms, 45 * ms, 39 * ms}, 2},
		"sooner and later":     {[]time.Duration{50 * ms, 45 * ms, 56 * ms}, 2},
		"some without a bound": {[]time.Duration{0, 50 * ms, 0, 39 * ms}, 3},
		"none with one":        {[]time.Duration{0, 0, 0}, 3},
	} {
		var group []call
		for _, at := range c.notAfters {
			group = append(group, call{ops: make([]script.Operation, 1), notAfter: at})
		}
		if got := l.spanLength(group); got != c.want {
			t.Errorf("%s: %d calls in one command, want %d", name, got, c.want)
		}
	}
}
