// Package ballot is one question to all nodes and the count of its answers: an attempt, a
// release, the question who holds a lock. A ballot is decided by the answer after which no
// other can change the outcome.
//
// Package redlock makes a ballot, hands its operations to the lanes of package node as the
// voter of the call, and waits. The package sends nothing, knows neither leases nor names
// of locks, and never decides what follows from a count.
package ballot
