// Package redistest has a node without a server for tests: its answers are known in advance.
//
// It is imported by the tests of package redis, and by the tests of packages that use redis.
// No program imports it. It opens no port: a test gives the node to package redis in place of
// a connection.
package redistest
