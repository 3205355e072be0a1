// Package admission decides whether a node may vote.
//
// A node votes only for an incarnation (a life of a Redis process with its memory
// intact) that was admitted: its epoch says so. A node without a valid epoch is in
// quarantine until every lease is over that it may have voted for and forgotten.
//
// The lanes of package redlock read each node's state into a [Snapshot] and call
// [Member.Judge], which returns a [Verdict]: the vote status, and what to write to the
// node, which other nodes to look at, and what to tell the operator. What one node's
// admission needs to know about the other nodes is in [Fleet].
//
// This package does no I/O, starts no goroutine and reads no clock: instants come in
// with the snapshots.
package admission
