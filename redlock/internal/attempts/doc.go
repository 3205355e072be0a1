// Package attempts coordinates the attempts of one process before a node is asked. [Limiter]
// bounds how many are in progress, and lets the users take turns. [Slots] prevents two attempts
// from requesting the same slot of a semaphore.
//
// Package redlock calls it before it makes an attempt, and when the attempt has ended. The
// package sends nothing, knows neither nodes nor leases, and never decides whether an attempt
// succeeds.
package attempts
