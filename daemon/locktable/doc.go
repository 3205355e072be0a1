// Package locktable has the locks of this host: its leases and which client finds them, the states of
// a lease, and for each lock name the holders and the waiters of this host, first come, first served.
// It decides what follows an event of a lease, which waiters may ask the nodes, and which waiter a
// lock is passed on to. It finds deadlocks among owners of this host.
//
// Package session calls it, with one mutex around the Table and one around the Queue. Table.Apply
// takes an event of a lease, and returns the effects that are due: session performs them. In the
// Queue, session calls Join when a LOCK arrives; Granted when the nodes granted it; Leave when the
// attempt failed or the lease ended. Before a release it calls ClaimNext. If a waiter is returned,
// session has redlock pass the lock on and calls Deliver, or else Unclaim.
//
// life.go has the table of states and events, table.go the leases, client.go what a client finds by
// name, limits.go what counts for a user, restart.go what becomes of the leases of an earlier daemon,
// queue.go the queues. kind.go says which waiters block which. handover.go has ClaimNext and the limits
// after which other hosts go first.
//
// It has no clock and no goroutine, never talks to the nodes, and knows no connection, process or
// access rule: a Requester describes the client, and an Owner is compared, not used.
package locktable
