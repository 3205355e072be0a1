package redlock

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Of a node's hash the counters alone are taken, where they can be ones, and the largest of
// each. One that ends early is read as far as it goes.
func TestRaiseCounters(t *testing.T) {
	field := func(index int) string { f := fieldOf(index); return string(f[:]) }
	var fields []Reply
	for _, text := range []string{
		field(1), "5", field(2), "7", field(1), "4", "keeps", "9", "!!", "9", "epoch", "admitted",
		field(2), strconv.FormatUint(maxFence+1, 10), field(3), "x", field(maxCounters - 1), "1", field(2),
	} {
		fields = append(fields, Reply{Str: text})
	}
	counters := [maxCounters]uint64{2: 6, 3: 3}
	raiseCounters(&counters, fields)
	if want := ([maxCounters]uint64{1: 5, 2: 7, 3: 3, maxCounters - 1: 1}); counters != want {
		t.Errorf("got %v, want %v", counters, want)
	}
}

// A quorum lost its counters where that was so of all its nodes at one instant, and of these
// nodes alone, while they are reached.
func TestTotalLoss(t *testing.T) {
	type spans []lossSpan
	lost := func(first, last uint64) lossSpan { return lossSpan{lost: true, first: first, last: last} }
	for name, c := range map[string]struct {
		spans spans
		down  int // the last ones
		want  []bool
	}{
		"at once, and another later": {spans{lost(1, 9), lost(2, 9), lost(3, 9), {}, lost(10, 20)}, 0, []bool{true, true, true, false, false}},
		"one after the other":        {spans{lost(1, 4), lost(2, 9), lost(5, 9), {}, {}}, 0, []bool{false, false, false, false, false}},
		"two alone":                  {spans{lost(1, 9), lost(2, 9), {}, {}, {}}, 0, []bool{false, false, false, false, false}},
		"one is down":                {spans{lost(1, 9), lost(2, 9), {}, {}, lost(3, 9)}, 1, []bool{false, false, false, false, false}},
	} {
		f := newFleet(&Options{Nodes: make([]Node, len(c.spans)), rules: &soundRules})
		for i, l := range f.lanes {
			l.loss, l.state = c.spans[i], NodeQuarantined
			if i >= len(f.lanes)-c.down {
				l.state = NodeDown
			}
		}
		f.noteTotalLoss()
		var total []bool
		for _, l := range f.lanes {
			total = append(total, l.loss.total)
		}
		if !slices.Equal(total, c.want) {
			t.Errorf("%s: total are %v, want %v", name, total, c.want)
		}
	}
}

// What is warned of: a node that bears nothing, and a max_ttl that is another one elsewhere.
func TestFleetWarnings(t *testing.T) {
	for _, c := range []struct {
		nodes     int
		elsewhere time.Duration
		want      []string
	}{
		{5, time.Second, nil},
		{4, time.Second, []string{"4 nodes bear no more failures than 3 would"}},
		{4, time.Minute, []string{"4 nodes bear", "max_ttl is 1s here and 1m0s on other hosts"}},
	} {
		f := newFleet(&Options{Nodes: make([]Node, c.nodes), MaxTTL: time.Second, rules: &soundRules})
		f.noteMaxTTL(c.elsewhere)
		f.noteMaxTTL(time.Millisecond)
		if got := f.warnings(); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%d nodes, %v elsewhere: %q, want %q", c.nodes, c.elsewhere, got, c.want)
		}
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
			group = append(group, call{ops: make([]operation, 1), notAfter: at})
		}
		if got := l.spanLength(group); got != c.want {
			t.Errorf("%s: %d calls in one command, want %d", name, got, c.want)
		}
	}
}
