//go:build linux

package e2e

import (
	"testing"
)

// TestRestarts checks restarts under load like TestInstalled, on machines that cannot boot a
// systemd. The test keeps the connections instead. Usually it ends the daemon once in each way.
func TestRestarts(t *testing.T) {
	t.Parallel()
	s := startSuccession(t, 16384)
	l := startLoad(t, s.socket)
	for range rounds(1, 30) {
		for name, sig := range endings {
			l.through(name, 1, func() { s.succeed(sig) })
		}
	}
	l.end()
	l.quiet()
	for name := range endings {
		l.pause(name)
	}
}
