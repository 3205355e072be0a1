package admission

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// fleetOf makes a fleet with the given number of nodes.
func fleetOf(nodes int, maxTTL time.Duration) *Fleet {
	return NewFleet(Options{Nodes: make([]NodeOptions, nodes), Quorum: quorum.Majority(nodes), MaxTTL: maxTTL})
}

// A quorum lost its counters if all its nodes were without counters at one instant. Only nodes
// without counters are marked, and only while they are connected.
func TestTotalLoss(t *testing.T) {
	type spans []CounterLoss
	lost := func(first, last uint64) CounterLoss { return CounterLoss{Lost: true, first: first, last: last} }
	for name, c := range map[string]struct {
		spans spans
		down  int // the last nodes
		want  []bool
	}{
		"at once, and another later": {spans{lost(1, 9), lost(2, 9), lost(3, 9), {}, lost(10, 20)}, 0, []bool{true, true, true, false, false}},
		"one after the other":        {spans{lost(1, 4), lost(2, 9), lost(5, 9), {}, {}}, 0, []bool{false, false, false, false, false}},
		"two alone":                  {spans{lost(1, 9), lost(2, 9), {}, {}, {}}, 0, []bool{false, false, false, false, false}},
		"one is down":                {spans{lost(1, 9), lost(2, 9), {}, {}, lost(3, 9)}, 1, []bool{false, false, false, false, false}},
	} {
		f := fleetOf(len(c.spans), 0)
		copy(f.losses, c.spans)
		for i := range c.spans {
			f.connected[i] = i < len(c.spans)-c.down
		}
		f.noteTotalLoss()
		var total []bool
		for _, loss := range f.losses {
			total = append(total, loss.Total())
		}
		if !slices.Equal(total, c.want) {
			t.Errorf("%s: total are %v, want %v", name, total, c.want)
		}
	}
}

// The fleet warns of a node that adds no tolerance, and of a different max_ttl on other hosts.
func TestFleetWarnings(t *testing.T) {
	for _, c := range []struct {
		nodes     int
		elsewhere time.Duration
		want      []string
	}{
		{5, time.Second, nil},
		{4, time.Second, []string{"4 nodes tolerate no more failures than 3 would"}},
		{4, time.Minute, []string{"4 nodes tolerate", "max_ttl is 1s here and 1m0s on other hosts"}},
	} {
		f := fleetOf(c.nodes, time.Second)
		f.raiseMaxTTL(c.elsewhere)
		f.raiseMaxTTL(time.Millisecond)
		if got := f.Warnings(); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%d nodes, %v elsewhere: %q, want %q", c.nodes, c.elsewhere, got, c.want)
		}
	}
}

// A fleet is new if this process saw all nodes without counters, and no quorum has voted since. A
// node that had a vote when it was first seen, or that was never reached, may have counters.
func TestFleetIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		lost  int // nodes seen without counters
		voted []int
		want  bool
	}{
		"all new":                     {3, nil, true},
		"one was admitted since":      {3, []int{0}, true},
		"a quorum was admitted since": {3, []int{0, 1}, false},
		"one is not reached":          {2, nil, false},
		"one had a vote before":       {2, []int{2}, false},
	} {
		f := fleetOf(3, time.Second)
		for node := range c.lost {
			f.noteCounterLoss(node, true, 1, 2)
		}
		for _, node := range c.voted {
			f.Member(node).Applied(Ready, 0)
		}
		if got := f.IsNew(); got != c.want {
			t.Errorf("%s: is new %t, want %t", name, got, c.want)
		}
	}
}
