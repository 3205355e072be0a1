// Package daemontest starts daemons in the process of a test, and talks to them.
//
// It owns a Daemon over real redis-servers, a Wire (a connection of a client, line by line), a
// Log that a test can wait for, and Eventually. The tests of packages daemon and session use
// it. It does not know what serves: a test passes a Serve function, so that the package
// imports neither of them. No program imports it.
package daemontest
