// Package redistest has a node without a server for tests: its answers are known in advance.
//
// It is imported by tests of package redis, and of packages that use it. No program imports it,
// and it opens no port.
package redistest
