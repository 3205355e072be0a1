// Package node is one Redis master as the lock algorithm sees it: a lane, which sends
// calls to the node in the order in which it got them, over one connection, many in one
// group, and several groups at once over a slow network. The lane restores that order after
// a connection broke, repeats releases until the node has answered them, looks at the node
// every second (package admission decides then whether it may vote), and learns from the
// node when a lock is released (Waiter).
//
// Ballots hand calls to lanes, and get the answers as a Voter. The package never decides
// whether a lock was granted, never reads an answer's meaning for a lease, and never sends
// anything but releases a second time.
package node
