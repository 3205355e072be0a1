// Package node has one Redis master as the lock algorithm sees it. A lane sends calls to the node
// in the order in which it got them, over one connection: many in one group, and several groups
// at a time over a slow network. The lane restores that order after a connection broke. It
// repeats releases until the node has answered them. It looks at the node every second, and
// package admission then decides whether the node may vote. The lane also listens for releases on
// the node (Waiter).
//
// Ballots pass calls to lanes, and get the answers as a Voter. The package never decides whether
// a lock was granted, and does not interpret an answer for a lease. It sends a call a second time
// only if the call is a release, or if the node reported that it did not execute the call.
package node
