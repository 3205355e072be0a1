package node

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// A command has only one not-after time for all of its calls. No call is refused much earlier
// than its own not-after time, whichever call was first in the command.
func TestSpansKeepNotAfter(t *testing.T) {
	const ms = time.Millisecond
	l := &Lane{timing: newTiming(50 * ms)}
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
		var group []Call
		for _, at := range c.notAfters {
			group = append(group, Call{Ops: make([]script.Operation, 1), NotAfter: at})
		}
		if got := l.spanLength(group); got != c.want {
			t.Errorf("%s: %d calls in one command, want %d", name, got, c.want)
		}
	}
}

// Some operations cost a node more, so fewer of them are put into one command. Guards Call.weight.
func TestCallsThatCostMoreAreCut(t *testing.T) {
	l := &Lane{timing: newTiming(50 * time.Millisecond)}
	for op, want := range map[script.Opcode]int{script.Acquire: MaxOps, script.Release: MaxOps / 2, script.Join: MaxOps / 4, script.Who: MaxOps / 8, script.Describe: MaxOps / 8} {
		var group []Call
		for range 2 * MaxOps {
			group = append(group, Call{Ops: []script.Operation{{Op: op}}})
		}
		if got := l.spanLength(group); got != want {
			t.Errorf("%c: %d calls in one command, want %d", op, got, want)
		}
	}
}
