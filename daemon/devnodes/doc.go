// Package devnodes embeds nodes in the process, for redlockd -dev and for tests. They replace Redis,
// and the daemon reaches them through socket pairs.
//
// Package daemon starts them. Locks on them mean nothing outside the process. It never opens a
// port, and it never runs together with nodes of the config.
package devnodes
