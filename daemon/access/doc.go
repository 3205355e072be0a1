// Package access decides what a client may do. It owns the access rules (which users may
// lock, inspect or administer which locks), what a client may see of the locks of
// others, and the limits of each user.
//
// The daemon calls it for each connection and each request; redlockd validate calls
// [Verdicts]. All decisions use the user and the groups that the kernel recorded when
// the client connected.
//
// It never looks at leases, sessions or nodes, and never waits: a caller passes names,
// user ids and counts.
package access
