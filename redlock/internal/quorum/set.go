package quorum

import "math/bits"

// Set is a set of nodes: bit i stands for the node with the index i.
type Set uint64

// Max is the largest number of nodes.
const Max = 63

// Of returns the set of the given nodes.
func Of(nodes ...int) (s Set) {
	for _, node := range nodes {
		s |= 1 << node
	}
	return s
}

// First returns the set of the first n nodes.
func First(n int) Set { return 1<<n - 1 }

// Has reports whether node is in the set.
func (s Set) Has(node int) bool { return s&(1<<node) != 0 }

// Len returns the number of nodes in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }
