// Package admission decides whether a node may vote.
//
// A node votes only for an incarnation (a life of a Redis process with its memory intact) that
// was admitted, as its epoch shows. A node without a valid epoch is quarantined until every lease
// has expired that it may have voted for and lost.
//
// The lanes of package redlock read each node's state into a [Snapshot] and call [Member.Judge],
// which returns a [Verdict]: the vote status, what to write to the node, which other nodes to
// look at, and what to report to the operator. [Fleet] has what the admission of one node needs
// to know about the others.
//
// This package does no I/O, starts no goroutine and reads no clock: instants come with the
// snapshots.
package admission
