// Package devnodes embeds nodes in the process for redlockd -dev and for tests: stand-ins for
// Redis that are reached through socket pairs, so that no port is open.
//
// Package daemon starts them. Locks on them mean nothing beyond the process.
package devnodes
