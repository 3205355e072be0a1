// Package devnodes embeds nodes in the process, for redlockd -dev and for tests: stand-ins for
// Redis that are reached through socket pairs.
//
// Package daemon starts them. Locks on them mean nothing outside the process. It never opens a
// port, and it never runs with nodes of the config.
package devnodes
