// Package daemontest starts daemons in the process of a test, and talks to them.
//
// It has Daemon, which runs over real redis-servers; Wire, a client connection that is read line by
// line; Log, which a test can wait for; and Eventually. The tests of packages daemon and session use
// it. A test passes the function that serves, so daemontest imports neither package. No program
// imports it.
package daemontest
