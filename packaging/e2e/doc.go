// Package e2e tests redlockd and redlock as built: processes, nc, and real
// redis-servers. Nothing in it is imported.
package e2e
