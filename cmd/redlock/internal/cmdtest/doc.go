// Package cmdtest runs redlock, and the programs around it, in tests.
//
// The test binary runs again in a role: redlock itself, a daemon with embedded nodes, a
// command that reports its signals. A Process has helpers that wait for what must happen,
// at most Timeout. A Fake is a daemon that replies as the test tells it to. Only tests
// import the package.
package cmdtest
