// Package attempts is what the attempts of one process agree on before a node is asked.
// [Limiter] bounds how many of them are under way, and lets the users take turns. [Slots]
// lets no two of them request the same slot of a semaphore.
//
// Package redlock calls it before it makes an attempt, and when the attempt has ended. The
// package sends nothing, knows neither nodes nor leases, and never decides whether an
// attempt succeeds.
package attempts
