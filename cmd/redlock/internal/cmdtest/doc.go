// Package cmdtest runs redlock, and the programs around it, in tests.
//
// The test binary runs again in a role: redlock itself, a daemon with embedded nodes, or a command
// that reports its signals. A Process has helpers that wait for an event, at most Timeout. A Fake
// is a daemon whose replies the test chooses. Only tests import the package.
package cmdtest
