package quorum

import (
	"cmp"
	"math/bits"
	"slices"
)

// System says which sets of nodes are quorums. The zero value has none.
type System struct{ groups []group }

// group is a part of a quorum.
type group struct {
	nodes  Set
	needed int // how many of the nodes a quorum has
}

// spare returns how many of the nodes a quorum can do without.
func (g group) spare() int { return g.nodes.Len() - g.needed }

// majorityOf returns ⌊n/2⌋+1: any two sets of that many of n nodes have a node in common.
func majorityOf(n int) int { return n/2 + 1 }

// Majority returns the System of n nodes, of which a quorum has a majority.
func Majority(n int) System { return Joint(First(n)) }

// Joint returns the System of several groups: a quorum has a majority of each. Groups may share
// nodes.
func Joint(groups ...Set) System {
	var s System
	for _, nodes := range groups {
		s.groups = append(s.groups, group{nodes, majorityOf(nodes.Len())})
	}
	return s
}

// Weakened returns a System of which a quorum has one node fewer of each group, but at least one.
// Quorums may then share no node: it is for tests that show what follows.
func (s System) Weakened() (weak System) {
	for _, g := range s.groups {
		weak.groups = append(weak.groups, group{g.nodes, max(1, g.needed-1)})
	}
	return weak
}

// Decides reports whether the nodes include a quorum.
func (s System) Decides(nodes Set) bool {
	for _, g := range s.groups {
		if (nodes & g.nodes).Len() < g.needed {
			return false
		}
	}
	return len(s.groups) > 0
}

// Blocks reports whether every quorum has one of the nodes: without them, no quorum is left.
func (s System) Blocks(nodes Set) bool {
	for _, g := range s.groups {
		if (nodes & g.nodes).Len() > g.spare() {
			return true
		}
	}
	return len(s.groups) == 0
}

// Needed returns how many nodes the smallest quorum has at least. With one group, that many
// nodes are a quorum.
func (s System) Needed() (n int) {
	for _, g := range s.groups {
		n = max(n, g.needed)
	}
	return n
}

// Blocking returns a number of nodes such that any set of that many blocks. With one group, it is
// the smallest.
func (s System) Blocking() int {
	n := 1
	for _, g := range s.groups {
		n += g.spare()
	}
	return n
}

// AtLeast returns the largest value that all nodes of some quorum have at least.
func AtLeast[T cmp.Ordered](s System, value func(node int) T) (reached T) {
	for i, g := range s.groups {
		var few [8]T // saves an allocation
		sorted := sortedValues(g.nodes, few[:0], value)
		if least := sorted[g.spare()]; i == 0 || least < reached {
			reached = least
		}
	}
	return reached
}

// AtMost returns the smallest value that all nodes of some quorum have at most.
func AtMost[T cmp.Ordered](s System, value func(node int) T) (reached T) {
	for i, g := range s.groups {
		var few [8]T // saves an allocation
		sorted := sortedValues(g.nodes, few[:0], value)
		if most := sorted[g.needed-1]; i == 0 || most > reached {
			reached = most
		}
	}
	return reached
}

// sortedValues appends the values of the nodes, and sorts them.
func sortedValues[T cmp.Ordered](nodes Set, room []T, value func(node int) T) []T {
	for rest := nodes; rest != 0; rest &= rest - 1 {
		room = append(room, value(bits.TrailingZeros64(uint64(rest))))
	}
	slices.Sort(room)
	return room
}
