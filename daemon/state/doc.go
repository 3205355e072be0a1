// Package state keeps what must outlast the process of the daemon: leases, requests that
// were not answered yet, and connections.
//
// The Journal records each change before a client or a node can know of it. Its records go into the
// state file (package statefile). The next process of the same boot reads them as Recovered. The
// ConnStore leaves duplicates of connections with the service manager. Leases, requests and
// connections have numbers, which are unique within a boot. A lease has the number of its LOCK.
//
// Packages daemon and daemon/session call it. It knows plain values only: it makes no
// session, no held lease and no answer, and it never talks to a node.
package state
