package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// Two hosts have different values of max_ttl. The larger one is written to the nodes before it is
// used. It is the quarantine of both hosts, even if the other one is not running.
func TestRealFleetUsesLargerMaxTTL(t *testing.T) {
	const shorter, longer = 500 * ms, 2 * time.Second
	s := newSite(t, 3)
	short := s.newHost(maxTTL(shorter))
	want(t, "max_ttl at first", short.Status().MaxTTL, shorter)
	long := s.newHost(maxTTL(longer))
	for _, server := range s.all {
		if epoch := s.epochOf(server); !strings.Contains(epoch, ":2000:") {
			t.Errorf("node %s: epoch %s, want the larger max_ttl in it", server.Name(), epoch)
		}
	}
	short.eventually("the larger max_ttl is known", func() bool { return short.Status().MaxTTL == longer })
	wantWarning(t, short.Status().Warning, "500ms here and 2s on other hosts")
	short.wantNoQuarantine("another max_ttl")
	want(t, "max_ttl of the host that has it", long.Status().MaxTTL, longer)

	start := time.Now()
	must(t, s.server("c").Restart())
	for _, h := range []*host{short, long} {
		h.wentThrough("c", redlock.NodeQuarantined)
	}
	late := s.openHost(everywhere, maxTTL(shorter)) // learns the larger max_ttl from the nodes, and waits as long
	for _, h := range []*host{short, long, late} {
		h.awaits("c", redlock.NodeReady)
		wantLater(t, "it votes", start, longer)
	}
	wantFollows(t, s)
}

// wantFollows checks that a later host accepts the epoch that others vouched for, without
// waiting.
func wantFollows(t *testing.T, s *site) {
	t.Helper()
	h := s.newHost()
	h.wantNoQuarantine("a host that comes later")
	h.pair("x")
}
