// Package redlocktest is what package redlock and the packages built on it are tested
// with: redis-servers that are started for one test and can be killed and stopped
// ([StartRedis]), a simulated node whose network, clock and memory fail as the test says
// ([Sim]), and one suite that both must pass ([Conformance]), so that what holds on the
// simulated node holds on Redis.
//
// Package simulation puts simulated nodes, daemons and clients together and searches for
// broken promises.
package redlocktest
