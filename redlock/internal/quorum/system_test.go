package quorum

import (
	"slices"
	"testing"
)

// systems are one group of 1 to 5 nodes, and two groups of up to 5 nodes together, with and without
// common nodes.
func systems() map[string]struct {
	System
	lists []Set
	nodes int
} {
	all := map[string]struct {
		System
		lists []Set
		nodes int
	}{}
	add := func(name string, nodes int, lists ...Set) {
		s := Joint(lists...)
		all[name] = struct {
			System
			lists []Set
			nodes int
		}{s, lists, nodes}
	}
	add("one", 1, First(1))
	add("two", 2, First(2))
	add("three", 3, First(3))
	add("four", 4, First(4))
	add("five", 5, First(5))
	add("one to three", 3, First(1), First(3))
	add("three to five", 5, First(3), First(5))
	add("three to one", 3, First(3), First(1))
	add("one to another", 2, Of(0), Of(1))
	add("one replaced", 4, Of(0, 1, 2), Of(0, 1, 3))
	add("three to two others", 5, Of(0, 1, 2), Of(3, 4))
	return all
}

// isQuorum says what a quorum is in other words: more of each list are in the set than are not.
func isQuorum(lists []Set, nodes Set) bool {
	return !slices.ContainsFunc(lists, func(list Set) bool { return (list & nodes).Len() <= (list &^ nodes).Len() })
}

// For each set of nodes: Decides says whether it has a quorum, and Blocks whether the other nodes
// have none. Any two quorums share a node of each list. Guards Joint, Decides, Blocks.
func TestQuorumsOverlap(t *testing.T) {
	for name, s := range systems() {
		everything := First(s.nodes)
		for a := range everything + 1 {
			if got := s.Decides(a); got != isQuorum(s.lists, a) {
				t.Errorf("%s: Decides(%b) = %v", name, a, got)
			}
			if got := s.Blocks(a); got == isQuorum(s.lists, everything&^a) {
				t.Errorf("%s: Blocks(%b) = %v", name, a, got)
			}
			for b := range everything + 1 {
				for _, list := range s.lists {
					if s.Decides(a) && s.Decides(b) && a&b&list == 0 {
						t.Errorf("%s: the quorums %b and %b share no node of %b", name, a, b, list)
					}
				}
			}
		}
	}
}

// In a change of the nodes, for each set of nodes that refuse hosts with the old list: the quorums of
// a host with both lists overlap with those of each other host that may hold a lock: of hosts with
// both lists in each list; of hosts with the old list, which count no node that refuses them, in that
// list; and of hosts with the new list, which there are only if a majority of the old list refuses, in
// the new list. Guards Changing.
func TestQuorumsOfChangeOverlap(t *testing.T) {
	for name, s := range systems() {
		if len(s.lists) < 2 {
			continue
		}
		everything := First(s.nodes)
		for refusing := range everything + 1 {
			var r Refusing
			for node := range s.nodes {
				r.Note(node, refusing.Has(node))
			}
			c := Changing(s.lists[0], s.lists[1], &r)
			old, after := Joint(s.lists[0]), Joint(s.lists[1])
			for a := range everything + 1 {
				if got := c.Blocks(a); got == c.Decides(everything&^a) {
					t.Errorf("%s, %b refuse: Blocks(%b) = %v", name, refusing, a, got)
				}
				if c.Decides(a) && (!c.MayHold(a) || !c.MayRepair(a) || c.CannotRecover(everything&^a)) {
					t.Errorf("%s, %b refuse: the quorum %b cannot hold a lock", name, refusing, a)
				}
				if got := c.Spare(a); (got >= 0) != c.Decides(a) {
					t.Errorf("%s, %b refuse: Spare(%b) = %d", name, refusing, a, got)
				}
				if !c.Decides(a) {
					continue
				}
				if a.Len() < c.Needed() {
					t.Errorf("%s, %b refuse: %b is a quorum, and Needed is %d", name, refusing, a, c.Needed())
				}
				for b := range everything + 1 {
					switch {
					case c.Decides(b) && a&b&s.lists[0] == 0:
						t.Errorf("%s, %b refuse: %b and %b share no old node", name, refusing, a, b)
					case old.Decides(b&^refusing) && a&b&s.lists[0] == 0:
						t.Errorf("%s, %b refuse: %b and %b of an old host share no old node", name, refusing, a, b)
					case old.Decides(refusing) && after.Decides(b) && a&b&s.lists[1] == 0:
						t.Errorf("%s, %b refuse: %b and %b of a new host share no new node", name, refusing, a, b)
					}
				}
			}
		}
	}
}

// A quorum has at least Needed nodes, and any Blocking nodes block. With one list, both are exact.
// Guards Needed, Blocking.
func TestSizes(t *testing.T) {
	for name, s := range systems() {
		smallest, largestHarmless := s.nodes, 0
		for a := range First(s.nodes) + 1 {
			if s.Decides(a) {
				smallest = min(smallest, a.Len())
			}
			if !s.Blocks(a) {
				largestHarmless = max(largestHarmless, a.Len())
			}
		}
		if got := s.Needed(); got > smallest || len(s.lists) == 1 && got != smallest {
			t.Errorf("%s: Needed() = %d, but the smallest quorum has %d nodes", name, got, smallest)
		}
		if got := s.Blocking(); got <= largestHarmless || got > s.nodes || len(s.lists) == 1 && got != largestHarmless+1 {
			t.Errorf("%s: Blocking() = %d, but %d of %d nodes do not block", name, got, largestHarmless, s.nodes)
		}
	}
}

// AtLeast and AtMost return the best value that a quorum can have, for each quorum and many
// values.
func TestValuesOfQuorums(t *testing.T) {
	for name, s := range systems() {
		for seed := range 50 {
			value := func(node int) int { return (seed*7 + node*node*5 + seed*node) % 11 }
			least, most := -1, 1000
			for a := range First(s.nodes) + 1 {
				if !s.Decides(a) {
					continue
				}
				low, high := 1000, -1
				for node := range s.nodes {
					if a.Has(node) {
						low, high = min(low, value(node)), max(high, value(node))
					}
				}
				least, most = max(least, low), min(most, high)
			}
			if got := AtLeast(s.System, value); got != least {
				t.Errorf("%s, seed %d: AtLeast = %d, want %d", name, seed, got, least)
			}
			if got := AtMost(s.System, value); got != most {
				t.Errorf("%s, seed %d: AtMost = %d, want %d", name, seed, got, most)
			}
		}
	}
}

// Nothing decides without groups.
func TestNoGroups(t *testing.T) {
	if s := (System{}); s.Decides(First(63)) || !s.Blocks(0) {
		t.Error("a System without groups decides")
	}
}
