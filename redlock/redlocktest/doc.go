// Package redlocktest provides the test environment of package redlock and of the packages
// built on it. [StartRedis] starts redis-servers for one test, which can be killed and
// stopped. [Sim] is a simulated node whose network, clock and memory fail as the test
// says. Both must pass the suite [Conformance], so that what holds on the simulated node
// holds on Redis.
//
// Package simulation puts simulated nodes, daemons and clients together and searches for
// broken promises.
package redlocktest
