// Package daemon runs redlockd on a host: it makes the socket, connects to the nodes, restores
// what an earlier process left, serves clients, and stops. cmd/redlockd calls Run.
//
// It joins the other packages: session answers the clients, state keeps what must outlast the
// process, metrics and logging tell what happens. Without a service manager that keeps
// connections, these end with BYE, and clients resume their leases on new ones. Otherwise the
// daemon stops as if it were killed: the next one goes on where the journal ends.
//
// It decides nothing about locks.
package daemon
