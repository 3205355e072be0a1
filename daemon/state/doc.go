// Package state keeps what must outlast the process of the daemon: leases, requests that
// were not answered yet, and connections.
//
// The Journal notes each change before a client or a node can know of it. Its records go
// into the state file (package statefile), from which the next process of the same boot
// makes Recovered. The ConnStore leaves duplicates of connections with the service manager.
// A lease, a request and a connection have numbers, which are given once a boot; a lease has
// the number of its LOCK.
//
// Packages daemon and daemon/session call it. It knows plain values only: it makes no
// session, no held lease and no answer, and it never talks to a node.
package state
