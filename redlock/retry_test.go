package redlock

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// policyWith returns a policy with the longest or the shortest possible delays.
func policyWith(longest bool, until time.Duration) *retryPolicy {
	jitter := func(_ string, n time.Duration) time.Duration {
		if longest {
			return n - 1
		}
		return 0
	}
	h := hooks{Hooks: node.Hooks{Jitter: jitter}}
	return &retryPolicy{q: &Quorum{fleet: &fleet{system: quorum.Majority(1)}, hooks: &h}, request: &Request{Name: "x"}, deadline: until, maxDelay: minRetryDelay}
}

var (
	heldFor = func(ttl time.Duration) error { return &HeldError{TTL: ttl} }
	noVotes = &NoQuorumError{}
)

// The limit of the delays grows. Each delay is random, between a quarter of its limit and all of
// it.
func TestRetryDelaysGrow(t *testing.T) {
	for longest, limit := range map[bool]func(time.Duration) time.Duration{
		true:  func(d time.Duration) time.Duration { return d - 1 },
		false: func(d time.Duration) time.Duration { return d / 4 },
	} {
		p := policyWith(longest, -1)
		for _, of := range []time.Duration{20, 40, 80, 160, 250, 250} {
			if delay, again := p.next(noVotes, time.Hour, 0); !again || delay != limit(of*time.Millisecond) {
				t.Errorf("delay %v (again: %v), want %v", delay, again, limit(of*time.Millisecond))
			}
		}
	}
}

// A waiter that the nodes call asks by itself only when a call may be lost: the first one when the
// holder's lease ends, or at intervals if the holder is foreign; the second one a little later; the
// others to renew their entries. After a split vote, which the next calls resolve, and without calls,
// the delay is short.
func TestRetryDelayByPosition(t *testing.T) {
	foreign := func(ttl time.Duration) error { return &HeldError{TTL: ttl, foreign: true} }
	for what, c := range map[string]struct {
		err      error
		position int
		want     time.Duration
	}{
		"in no queue":                      {heldFor(time.Minute), 0, minRetryDelay / 4},
		"in no queue, soon free":           {heldFor(time.Millisecond), 0, time.Millisecond + turnMargin},
		"first":                            {heldFor(10 * time.Second), 1, 10*time.Second + turnMargin},
		"first, long ttl":                  {heldFor(time.Minute), 1, RenewEntry},
		"first, foreign":                   {foreign(10 * time.Second), 1, foreignInterval},
		"first, foreign, soon free":        {foreign(100 * time.Millisecond), 1, 100*time.Millisecond + turnMargin},
		"first, never free":                {heldFor(Endless), 1, RenewEntry},
		"first, unknown ttl":               {heldFor(0), 1, minRetryDelay / 4},
		"second":                           {heldFor(10 * time.Second), 2, 10*time.Second + turnMargin + nextLater},
		"second, foreign":                  {foreign(10 * time.Second), 2, 10*time.Second + turnMargin + nextLater},
		"second, during the first's turn":  {&HeldError{TTL: 50 * time.Millisecond, Waiting: true}, 2, 50*time.Millisecond + turnMargin},
		"fourth":                           {heldFor(10 * time.Second), 4, 10*time.Second + turnMargin + 3*nextLater},
		"fifth":                            {heldFor(10 * time.Second), 5, RenewEntry},
		"first, free on some of the nodes": {&HeldError{TTL: time.Minute, split: true}, 1, minRetryDelay / 4},
		"no quorum":                        {noVotes, 1, minRetryDelay / 4},
	} {
		if delay, again := policyWith(false, -1).next(c.err, time.Hour, c.position); !again || delay != c.want {
			t.Errorf("%s: delay %v (again: %v), want %v", what, delay, again, c.want)
		}
	}
}

// No attempt begins after the end of the wait. Nothing else ends it: a waiter waits for a holder,
// for a quorum and for a quarantine.
func TestRetriesEnd(t *testing.T) {
	const start, ttl = time.Hour, 6 * time.Second
	for what, c := range map[string]struct {
		err   error
		until time.Duration
		at    time.Duration
		again bool
	}{
		"before the end":            {heldFor(time.Minute), start + time.Second, start + time.Second - 1, true},
		"at the end":                {heldFor(time.Minute), start + time.Second, start + time.Second, false},
		"no end":                    {heldFor(time.Minute), -1, start + 100*ttl, true},
		"no quorum, before the end": {noVotes, start + 100*ttl, start + 100*ttl - 1, true},
		"no quorum, at the end":     {noVotes, start + 100*ttl, start + 100*ttl, false},
		"no quorum, no end":         {noVotes, -1, start + 100*ttl, true},
		"a quarantine":              {&NoQuorumError{Quarantine: time.Minute}, -1, start + 100*ttl, true},
	} {
		p := policyWith(true, c.until)
		delay, again := p.next(c.err, c.at, 0)
		if again != c.again || c.until > 0 && again && c.at+delay != c.until {
			t.Errorf("%s: again %v, after %v; want %v", what, again, delay, c.again)
		}
	}
}
