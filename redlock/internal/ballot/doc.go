// Package ballot has a question to all nodes and the count of its answers: an attempt, a release,
// or a query of the holder. A ballot is decided by the answer after which no other can change the
// outcome.
//
// Package redlock makes a ballot, passes its operations to the lanes of package node with the
// ballot as the voter, and waits. The package sends nothing, knows neither leases nor names of
// locks, and never decides what follows from a count.
package ballot
