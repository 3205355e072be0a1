// Package redlocktest provides the nodes that tests of package redlock and of other packages use.
// [StartRedis] starts redis-servers for one test, which the test can kill and stop. [Sim] is a
// simulated node; the test makes its network, clock and memory fail. Both must pass the suite
// [Conformance], so that a test on the simulated node holds on Redis as well.
//
// Package simulation runs simulated nodes, daemons and clients together and searches for broken
// promises.
package redlocktest
