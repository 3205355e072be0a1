// Package quorum knows which sets of nodes decide: the quorums.
//
// A [System] is made once for the nodes of a process, and every count of answers asks it. It has
// groups of nodes, usually one. A quorum has a majority of each group, so any two quorums share a
// node in each group. Nodes are numbered, and a set of nodes is a [Set] of bits.
//
// The package sends nothing, and knows neither answers nor their meaning. It imports no package of
// the project.
package quorum
