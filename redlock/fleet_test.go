package redlock

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// readHash takes only valid counters from a node's hash, and the largest value of
// each. It reads a truncated hash as far as it goes.
func TestReadHash(t *testing.T) {
	field := func(index int) string { f := script.FieldOf(index); return string(f[:]) }
	var fields []Reply
	for _, text := range []string{
		field(1), "5", field(2), "7", field(1), "4", "keeps", "9", "!!", "9", "epoch", "admitted",
		field(2), strconv.FormatUint(script.MaxFence+1, 10), field(3), "x", field(script.MaxCounters - 1), "1", field(2),
	} {
		fields = append(fields, Reply{Str: text})
	}
	counters := admission.Counters{2: 6, 3: 3}
	epoch := readHash(&counters, fields)
	if want := (admission.Counters{1: 5, 2: 7, 3: 3, script.MaxCounters - 1: 1}); counters != want {
		t.Errorf("got %v, want %v", counters, want)
	}
	if epoch != "admitted" {
		t.Errorf("the epoch is %q", epoch)
	}
}

func TestDrift(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 3 * time.Millisecond,
		time.Second:            12 * time.Millisecond,
		30 * time.Second:       302 * time.Millisecond,
	} {
		if got := drift(ttl); got != want {
			t.Errorf("drift(%v): got %v, want %v", ttl, got, want)
		}
	}
}
