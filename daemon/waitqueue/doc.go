// Package waitqueue is the wait queue of this host: for each lock name, the holders and the
// waiters of this host, first come, first served. It decides which waiters may ask the nodes, finds
// deadlocks among owners of this host, and chooses the waiter that a lock is passed on to.
//
// Package session calls it: Join when a LOCK arrives; Granted when the nodes granted it; Leave when
// the attempt failed or the lease ended. Before a release it calls ClaimNext. If a waiter is
// returned, session has redlock pass the lock on and calls Deliver, or else Unclaim.
//
// queue.go has the queues, kind.go says which waiters block which, handover.go has ClaimNext and the
// limits after which other hosts go first.
//
// It never talks to the nodes, and knows no connection, process or access rule: a Requester
// describes the client, and an Owner is compared, not used.
package waitqueue
