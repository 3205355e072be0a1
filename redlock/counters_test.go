package redlock

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Counters and their fields correspond one to one.
func TestCounterFields(t *testing.T) {
	seen := map[script.CounterField]bool{}
	for i := range script.MaxCounters {
		field := script.FieldOf(i)
		if index, ok := script.CounterIndex(string(field[:])); !ok || index != i || seen[field] {
			t.Fatalf("counter %d has the field %s, which is counter %d (%v, seen before: %v)", i, field, index, ok, seen[field])
		}
		seen[field] = true
	}
	for _, field := range []string{"", "a", "aaa", "a1", "Ab", "epoch"} {
		if index, ok := script.CounterIndex(field); ok {
			t.Errorf("%q is taken for counter %d", field, index)
		}
	}
}

// A record of a counter has the right field and number, whatever the number.
func TestRecords(t *testing.T) {
	var counters admission.Counters
	counters[1], counters[1023] = 7, script.MaxFence
	text := string(script.Records(&counters))
	if !strings.HasPrefix(text, "aa0000000000000000ab0000000000000007") || !strings.HasSuffix(text, "779006099743113216") || len(text) != script.MaxCounters*18 {
		t.Errorf("got %d bytes of records: %.40s … %s", len(text), text, text[max(0, len(text)-20):])
	}
}

// A fencing token that a double cannot count exactly is not believed.
func TestFenceRange(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "9006099743113216": true, "9006099743113217": false, "0": false, "-1": false, "x": false, "": false, "18446744073709551615": false,
	} {
		if _, ok := script.ParseFence(text); ok != want {
			t.Errorf("%q is a fencing token: %v, want %v", text, ok, want)
		}
	}
	for n, want := range map[int64]bool{1: true, -1: true, 0: false, 1 << 53: false, -1 << 53: false, math.MinInt64: false} {
		if got := script.IsFencedGrant(&Reply{Int: n}); got != want {
			t.Errorf("an answer of %d grants: %v, want %v", n, got, want)
		}
	}
}

// untilQuorum returns the time after which enough quarantines have passed for a quorum of seven
// nodes. Three quarantines end, and some of the other nodes can vote now.
func TestUntilQuorum(t *testing.T) {
	q := &Quorum{fleet: &fleet{system: quorum.Majority(7)}}
	for able, want := range map[int]time.Duration{4: 0, 3: 1, 2: 3, 1: 5, 0: 0} {
		left := []time.Duration{5, 1, 3, never, never, never, never}
		clear(left[3 : 3+able])
		if got := q.untilQuorum(left); got != want {
			t.Errorf("%d of 7 nodes can vote: %v, want %v", able, got, want)
		}
	}
}
