package redlock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The test steps the clock of the node that two quorums share. If it is stepped forward, a held
// lock expires there at once. If it is stepped back, the lock stays too long. Both hosts
// notice the step within a heartbeat and report it once. From then on, the node has no vote.
// Before that, it grants nothing, because it finds all requests late.
func TestRealClockIsStepped(t *testing.T) {
	t.Parallel() // most of the time it waits
	for _, ahead := range []time.Duration{2 * realTTL, -2 * realTTL} {
		t.Run(name("%v", ahead), func(t *testing.T) {
			s := newSite(t, 5, redlocktest.Skewable())
			left, right := s.newHostAt("abc", maxTTL(realTTL)), s.newHostAt("cde", maxTTL(realTTL))
			c := s.server("c")
			held := left.take(redlock.Request{Name: "x", TTL: realTTL})
			left.looksAgain(c, s.looks(c)) // before the step, its clock is compared with those of other nodes
			must(t, c.SetClock(ahead))
			want(t, "the key is gone", s.keyOn(c, "x") == "", ahead > 0)
			right.eventually("the step is noticed", func() bool {
				right.wantHeld("x")
				return right.of("c").State != redlock.NodeReady || t.Failed()
			})
			left.awaits("c", redlock.NodeQuarantined)
			before := s.looks(c)
			left.looksAgain(c, before) // by two hosts
			right.wantHeld("x")
			want(t, "the lease", held.Err(), nil)
			hosts := []*host{left, right}
			left.eventually("a host reports whose clock it was", func() bool { // it is judged a moment after it was seen
				return slices.ContainsFunc(hosts, func(h *host) bool { return len(h.jumps("c")) > 0 })
			})
			if len(left.noticesOf(redlock.HostClockJumped, ""))+len(right.noticesOf(redlock.HostClockJumped, "")) == 0 { // a host that is too busy to look at the others blames itself
				wantOnce(t, left, right, redlock.ClockJumped, "c")
			}
			for _, h := range hosts {
				h.eventually("each reported jump is counted", func() bool { return h.Status().Counts.ClockJumps == uint64(len(h.jumps("c"))) })
			}
		})
	}
}

// jumps returns a host's notices about a node's clock, or about its own clock if it could not
// look in time.
func (h *host) jumps(node string) []redlock.Notice {
	return append(h.noticesOf(redlock.ClockJumped, node), h.noticesOf(redlock.HostClockJumped, "")...)
}

// The test steps the clock forward and back while both hosts work. There are never two holders,
// tokens are in order, and the node votes again after each quarantine.
func TestRealClockIsSteppedUnderLoad(t *testing.T) {
	s := newSite(t, 5, redlocktest.Skewable())
	s.newHost()
	left, right := s.newHostAt("abc"), s.newHostAt("cde")
	h := s.work(left, right)
	for _, ahead := range []time.Duration{90 * time.Second, 0, -90 * time.Second} {
		h.more()
		left.forget()
		right.forget()
		epoch := s.epochOf(s.server("c"))
		for _, h := range []*host{left, right} { // until c votes for both: without c neither has a quorum, so they have seen its clock
			_ = h.take(redlock.Request{Name: "y", TTL: quarantine}).Release(t.Context()) // the lease may have expired by then
		}
		must(t, s.server("c").SetClock(ahead))
		for _, h := range []*host{left, right} {
			h.eventually("the step is noticed", func() bool { // or a quarantine passed that this host did not see
				return slices.Contains(h.states("c"), redlock.NodeQuarantined) || s.epochOf(s.server("c")) != epoch
			})
		}
		left.awaits("c", redlock.NodeReady)
		right.awaits("c", redlock.NodeReady)
	}
	h.wantSafe()
}
