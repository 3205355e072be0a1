package quorum

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
)

// System says which sets of nodes are quorums. The zero value has none.
type System struct {
	groups []group

	// A System of Changing has these, and both lists as groups.
	before   group // the old list
	refusing *Refusing
}

// Refusing has the nodes that no longer grant locks to hosts with the old list, as far as this
// process has seen. It is safe for concurrent use.
type Refusing struct{ nodes atomic.Uint64 }

// Note records whether a node refuses hosts with the old list.
func (r *Refusing) Note(node int, refuses bool) {
	if refuses {
		r.nodes.Or(1 << node)
	} else {
		r.nodes.And(^uint64(1 << node))
	}
}

// Nodes returns the nodes that refuse.
func (r *Refusing) Nodes() Set { return Set(r.nodes.Load()) }

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

// Changing returns the System of a change of the nodes from an old list to a new one. A quorum has
// a majority of each list. While nodes still grant locks to hosts with the old list, a majority of
// that list alone is a quorum, too: it counts only nodes that do not refuse these hosts.
func Changing(before, after Set, refusing *Refusing) System {
	s := Joint(before, after)
	s.before, s.refusing = s.groups[0], refusing
	return s
}

// Lists returns a System for each list of nodes, of which a quorum has a majority of that list.
func (s System) Lists() []System {
	var all []System
	for _, g := range s.groups {
		all = append(all, System{groups: []group{g}})
	}
	return all
}

// Contains reports whether a node is in one of the lists.
func (s System) Contains(node int) bool {
	return slices.ContainsFunc(s.groups, func(g group) bool { return g.nodes.Has(node) })
}

// Count returns how many of the nodes are in one of the lists.
func (s System) Count(nodes Set) int {
	var all Set
	for _, g := range s.groups {
		all |= g.nodes
	}
	return (nodes & all).Len()
}

// stillOld returns the nodes of the old list that do not refuse hosts with that list; none if the
// System is not of a change.
func (s System) stillOld() Set {
	if s.refusing == nil {
		return 0
	}
	return s.before.nodes &^ s.refusing.Nodes()
}

// Decides reports whether the nodes include a quorum.
func (s System) Decides(nodes Set) bool {
	if s.refusing != nil && (nodes&s.stillOld()).Len() >= s.before.needed {
		return true
	}
	for _, g := range s.groups {
		if (nodes & g.nodes).Len() < g.needed {
			return false
		}
	}
	return len(s.groups) > 0
}

// Blocks reports whether every quorum has one of the nodes: without them, no quorum is left.
func (s System) Blocks(nodes Set) bool {
	if s.refusing != nil && (s.stillOld()&^nodes).Len() >= s.before.needed {
		return false
	}
	for _, g := range s.groups {
		if (nodes & g.nodes).Len() > g.spare() {
			return true
		}
	}
	return len(s.groups) == 0
}

// MayHold reports whether a lock can be held if only these nodes have it, by a client of any host. In
// a change of the nodes, other hosts may have one of the lists already, or still.
func (s System) MayHold(nodes Set) bool {
	if s.refusing == nil {
		return s.Decides(nodes)
	}
	return slices.ContainsFunc(s.groups, func(g group) bool { return (nodes & g.nodes).Len() >= g.needed })
}

// CannotRecover reports whether a held lock is lost if these nodes do not have it. In a change of the
// nodes, new ones get a lock when a majority of the old list has it.
func (s System) CannotRecover(nodes Set) bool {
	if s.refusing != nil {
		return (nodes & s.before.nodes).Len() > s.before.spare()
	}
	return s.Blocks(nodes)
}

// MayRepair reports whether the other nodes can get the key of a held lock that these nodes have.
func (s System) MayRepair(nodes Set) bool {
	if s.refusing != nil {
		return (nodes & s.before.nodes).Len() >= s.before.needed
	}
	return s.Decides(nodes)
}

// Spare returns how many of the given nodes can fail, whichever they are, before they have no
// quorum. It is negative if they have none.
func (s System) Spare(nodes Set) int {
	spare := Max
	for _, g := range s.groups {
		spare = min(spare, (nodes&g.nodes).Len()-g.needed)
	}
	if s.refusing != nil {
		spare = max(spare, (nodes&s.stillOld()).Len()-s.before.needed)
	}
	return spare
}

// Needed returns how many nodes the smallest quorum has at least. With one group, that many
// nodes are a quorum.
func (s System) Needed() (n int) {
	if s.refusing != nil && s.stillOld().Len() >= s.before.needed {
		return s.before.needed
	}
	for _, g := range s.groups {
		n = max(n, g.needed)
	}
	return n
}

// Blocking returns a number of nodes such that any set of that many shares a node with every majority
// of each list. With one list, it is the smallest.
func (s System) Blocking() (n int) {
	var all Set
	for _, g := range s.groups {
		all |= g.nodes
	}
	for _, g := range s.groups {
		n = max(n, all.Len()-g.needed+1)
	}
	return n
}

// AtLeast returns the largest value that all nodes of some quorum have at least.
func AtLeast[T cmp.Ordered](s System, value func(node int) T) (reached T) {
	for i, g := range s.groups {
		if l := least(g, value); i == 0 || l < reached {
			reached = l
		}
	}
	if still := (group{s.stillOld(), s.before.needed}); s.refusing != nil && still.spare() >= 0 {
		reached = max(reached, least(still, value))
	}
	return reached
}

// AtMost returns the smallest value that all nodes of some quorum have at most.
func AtMost[T cmp.Ordered](s System, value func(node int) T) (reached T) {
	for i, g := range s.groups {
		if m := most(g, value); i == 0 || m > reached {
			reached = m
		}
	}
	if still := (group{s.stillOld(), s.before.needed}); s.refusing != nil && still.spare() >= 0 {
		reached = min(reached, most(still, value))
	}
	return reached
}

// least returns the largest value that enough nodes of the group have at least.
func least[T cmp.Ordered](g group, value func(node int) T) T {
	var few [8]T // saves an allocation
	return sortedValues(g.nodes, few[:0], value)[g.spare()]
}

// most returns the smallest value that enough nodes of the group have at most.
func most[T cmp.Ordered](g group, value func(node int) T) T {
	var few [8]T // saves an allocation
	return sortedValues(g.nodes, few[:0], value)[g.needed-1]
}

// sortedValues appends the values of the nodes, and sorts them.
func sortedValues[T cmp.Ordered](nodes Set, room []T, value func(node int) T) []T {
	for rest := nodes; rest != 0; rest &= rest - 1 {
		room = append(room, value(bits.TrailingZeros64(uint64(rest))))
	}
	slices.Sort(room)
	return room
}
