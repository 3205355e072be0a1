// Package waitqueue is the wait queue of this host: for each lock name, who holds it and who
// waits, first come, first served. It decides which waiters may ask the nodes, finds deadlocks
// among owners of this host, and passes a lock on to the next waiter in one call of the nodes.
//
// Package session calls it: Join when a LOCK arrives, Granted when the nodes granted it, Leave
// when the attempt failed or the lease ended.
//
// It never talks to the nodes, and knows no connection, process or access rule: a Requester
// says who asked, and an Owner is compared, not used.
package waitqueue
