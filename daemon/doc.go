// Package daemon runs redlockd on a host: it creates the socket, connects to the nodes, restores
// the state that an earlier process left, serves clients, and stops. cmd/redlockd calls Run.
//
// It joins the other packages: session answers the clients, state keeps what must outlast the
// process, metrics and logging report events. If the service manager stores connections, the daemon
// stops as if it were killed, and the next one continues where the journal ends. Otherwise the
// connections end with BYE, and clients resume their leases on new ones. If a new config needs another
// process, the daemon replaces itself, and passes all connections.
//
// It decides nothing about locks.
package daemon
