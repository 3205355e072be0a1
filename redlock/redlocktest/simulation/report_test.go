package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// grantOf returns a lease that was granted at an instant, with one stated deadline.
func grantOf(n int, at, until time.Duration) *Grant {
	return &Grant{
		Request: &Request{N: n, Lock: "x", Locks: []string{"x"}, By: "h1.1", TTL: until - at, Lost: never, DaemonEnded: never, ClientEnded: never, Ended: never},
		ID:      "id", TokenID: "id", Passed: never, Began: at, At: at, Fence: uint64(n), Nodes: 3, Held: 2,
		Claims:    []Claim{{at, at, until}},
		Releasing: never, Shares: never, GaveUp: never, Unreported: never,
	}
}

// TestChecks: each check accepts correct records and finds the wrong one.
func TestChecks(t *testing.T) {
	failed := &Request{Lock: "x", TTL: 100 * ms, Lost: never, DaemonEnded: never, Ended: 50 * ms}
	tests := []struct {
		name   string
		change func(r *Report, first, second *Grant)
		want   string // the check that fails; "": none
	}{
		{"one after the other", func(*Report, *Grant, *Grant) {}, ""},
		{"both at once", func(_ *Report, _, second *Grant) { second.At, second.Claims[0].At = 150*ms, 150*ms }, "exclusion"},
		{"after a release", func(_ *Report, first, second *Grant) {
			first.Releasing, second.At, second.Claims[0].At = 120*ms, 150*ms, 150*ms
		}, ""},
		{"after a FORCE", func(r *Report, first, second *Grant) {
			r.Forced = map[string]time.Duration{"forced": 140 * ms}
			first.TokenID, second.At, second.Claims[0].At = "forced", 150*ms, 150*ms
		}, ""},
		{"both at once, and released later", func(_ *Report, first, second *Grant) {
			first.Releasing, second.At, second.Claims[0].At = 180*ms, 150*ms, 150*ms
		}, "exclusion"},
		{"before a FORCE", func(r *Report, first, second *Grant) {
			r.Forced = map[string]time.Duration{"forced": 160 * ms}
			first.TokenID, second.At, second.Claims[0].At = "forced", 150*ms, 150*ms
		}, "exclusion"},
		{"extended meanwhile", func(_ *Report, first, _ *Grant) {
			first.Claims = append(first.Claims, Claim{180 * ms, 190 * ms, 350 * ms})
		}, "exclusion"},
		{"both at once, clocks stepped", func(r *Report, _, second *Grant) {
			r.Plan.Steps, second.At, second.Claims[0].At = true, 150*ms, 150*ms
		}, ""},
		{"readers at once", func(_ *Report, first, second *Grant) {
			first.Kind, second.Kind, second.At, second.Claims[0].At = "shared", "shared", 150*ms, 150*ms
		}, ""},
		{"a reader and a writer at once", func(_ *Report, first, second *Grant) {
			first.Kind, second.At, second.Claims[0].At = "shared", 150*ms, 150*ms
		}, "exclusion"},
		{"two slots at once", func(_ *Report, first, second *Grant) {
			first.Kind, second.Kind, first.Slot, second.Slot = "slots=2", "slots=2", 1, 2
			second.At, second.Claims[0].At = 150*ms, 150*ms
		}, ""},
		{"one slot twice", func(_ *Report, first, second *Grant) {
			first.Kind, second.Kind, first.Slot, second.Slot = "slots=2", "slots=2", 1, 1
			second.At, second.Claims[0].At = 150*ms, 150*ms
		}, "exclusion"},
		{"semaphores of two sizes at once", func(_ *Report, first, second *Grant) {
			first.Kind, second.Kind, first.Slot, second.Slot = "slots=2", "slots=3", 1, 3
			second.At, second.Claims[0].At = 150*ms, 150*ms
		}, "exclusion"},
		{"several locks, one in common, at once", func(_ *Report, first, second *Grant) {
			first.Locks, second.Locks = []string{"x", "y"}, []string{"y", "z"}
			second.At, second.Claims[0].At = 150*ms, 150*ms
		}, "exclusion"},
		{"other locks at once", func(_ *Report, first, second *Grant) {
			second.Locks, second.At, second.Claims[0].At = []string{"y"}, 150*ms, 150*ms
		}, ""},
		{"the same token, of readers", func(_ *Report, first, second *Grant) {
			first.Kind, second.Kind, second.Fence = "shared", "shared", 1
		}, ""},
		{"the same token", func(_ *Report, _, second *Grant) { second.Fence = 1 }, "fence"},
		{"a smaller token", func(_ *Report, first, _ *Grant) { first.Fence = 3 }, "fence"},
		{"a smaller token, requested earlier", func(_ *Report, first, second *Grant) { first.Fence, second.Began = 3, 90*ms }, ""},
		{"a smaller token, counters lost", func(r *Report, first, _ *Grant) {
			first.Fence, r.Plan.Loss, r.CounterLosses = 3, true, []time.Duration{250 * ms}
		}, ""},
		{"a smaller token, counters lost before", func(r *Report, first, _ *Grant) {
			first.Fence, r.Plan.Loss, r.CounterLosses = 3, true, []time.Duration{50 * ms}
		}, "fence"},
		{"a smaller token, counters lost later", func(r *Report, first, _ *Grant) {
			first.Fence, r.Plan.Loss, r.CounterLosses = 3, true, []time.Duration{350 * ms}
		}, "fence"},
		{"granted too late", func(_ *Report, first, _ *Grant) { first.Expired = true }, "validity"},
		{"granted by a minority", func(_ *Report, first, _ *Grant) { first.Held = 1 }, "quorum"},
		{"granted by a quorum, one node of which restarted", func(_ *Report, first, _ *Grant) { first.Held, first.Lapsed = 1, 1 }, ""},
		{"extended after it expired", func(_ *Report, _, second *Grant) {
			second.Claims = append(second.Claims, Claim{410 * ms, 420 * ms, 500 * ms})
		}, "finality"},
		{"extended after LOST", func(_ *Report, _, second *Grant) {
			second.Lost, second.Claims = 350*ms, append(second.Claims, Claim{360 * ms, 370 * ms, 500 * ms})
		}, "finality"},
		{"a deadline moved back", func(_ *Report, _, second *Grant) {
			second.Claims = append(second.Claims, Claim{320 * ms, 330 * ms, 380 * ms})
		}, "shortening"},
		{"LOST too late", func(_ *Report, first, _ *Grant) { first.Lost, first.Late = 200*ms, true }, "loss"},
		{"no LOST", func(_ *Report, first, _ *Grant) { first.Unreported = 201 * ms }, "loss"},
		{"a waiter that is not woken", func(r *Report, first, second *Grant) {
			first.Releasing, second.At = second.At, second.At+wokenWithin+1
			r.Wakes = []Wake{{first, second}}
		}, "wake"},
		{"a free lock that no client can acquire", func(r *Report, _, _ *Grant) { r.Stuck = []string{"x"} }, "liveness"},
		{"counters restarted without a reason", func(r *Report, _, _ *Grant) { r.CounterLosses = []time.Duration{time.Minute} }, "counter-loss"},
		{"counters restarted without a reason, early", func(r *Report, _, _ *Grant) { r.CounterLosses = []time.Duration{ms} }, "counter-loss"},
		{"counters of new nodes", func(r *Report, _, _ *Grant) {
			r.Plan.Fresh, r.CounterLosses = true, []time.Duration{ms}
		}, ""},
		{"counters of new nodes restarted later", func(r *Report, _, _ *Grant) {
			r.Plan.Fresh, r.CounterLosses = true, []time.Duration{time.Minute}
		}, "counter-loss"},
		{"a token of a failed attempt", func(r *Report, _, _ *Grant) {
			r.StrayTokens = []*StrayToken{{Request: failed, Token: "other", Attempt: 0, Last: 100 * ms}}
		}, ""},
		{"a token that outlives its attempt", func(r *Report, _, _ *Grant) {
			r.StrayTokens = []*StrayToken{{Request: failed, Token: "other", Attempt: 0, Last: 300 * ms}}
		}, "leftover"},
		{"a token that outlives an earlier attempt of the holder", func(r *Report, first, _ *Grant) {
			r.StrayTokens = []*StrayToken{{Request: first.Request, Token: "other", Attempt: 0, Last: time.Second}}
			first.Request.Grant = first
		}, "leftover"},
		{"passed on", func(_ *Report, first, _ *Grant) { first.Passed, first.Confirmed = 100*ms, 2 }, ""},
		{"passed on, and a minority confirmed it", func(_ *Report, first, _ *Grant) { first.Passed, first.Confirmed = 100*ms, 1 }, "window"},
		{"passed on before FORCE was answered", func(r *Report, first, _ *Grant) {
			first.Passed, first.Confirmed, r.ForceAnswered = 100*ms, 2, map[string]time.Duration{"id": 110 * ms}
		}, ""},
		{"passed on after FORCE was answered", func(r *Report, first, _ *Grant) {
			first.Passed, first.Confirmed, r.ForceAnswered = 100*ms, 2, map[string]time.Duration{"id": 90 * ms}
		}, "force"},
		{"passed on to a client that had ended", func(_ *Report, first, _ *Grant) {
			first.Passed, first.Confirmed, first.ClientEnded = 100*ms, 2, 90*ms
		}, "gone"},
		{"passed on, and lost later", func(_ *Report, first, second *Grant) {
			second.TokenID, second.Passed, second.Confirmed, first.Lost = first.TokenID, 300*ms, 2, 310*ms
		}, ""},
		{"passed on after it was lost", func(_ *Report, first, second *Grant) {
			second.TokenID, second.Passed, second.Confirmed, first.Lost = first.TokenID, 300*ms, 2, 190*ms
		}, "lost"},
		{"passed on with a smaller token than another host's", func(_ *Report, first, second *Grant) {
			second.Passed, second.Confirmed, first.Fence = 300*ms, 2, 7
		}, "fence"},
		{"passed on with a smaller token within the window, clocks stepped", func(r *Report, first, second *Grant) {
			r.Plan.Steps, first.At, second.Passed, second.Confirmed, first.Fence = true, 290*ms, 300*ms, 2, 7
		}, ""},
		{"passed on with a smaller token later, clocks stepped", func(r *Report, first, second *Grant) {
			r.Plan.Steps, second.Passed, second.Confirmed, first.Fence = true, 300*ms, 2, 7
		}, "fence"},
		{"waited while another host passed the lock on", func(r *Report, _, second *Grant) {
			r.Overtaken, second.host, second.Request.Began = []*Grant{second}, &host{}, 300*ms-longestPassedOver
		}, ""},
		{"waited too long while another host passed the lock on", func(r *Report, _, second *Grant) {
			r.Overtaken, second.host, second.Request.Began = []*Grant{second}, &host{}, 300*ms-longestPassedOver-1
		}, "starvation"},
		{"a token that is not released", func(r *Report, first, _ *Grant) {
			r.StrayTokens = []*StrayToken{{Request: first.Request, Token: "id", Last: 2 * time.Second, HealthyFor: strayAllowance + 1}}
			first.Request.Grant = first
		}, "debris"},
	}
	for _, test := range tests {
		first, second := grantOf(1, 100*ms, 200*ms), grantOf(2, 300*ms, 400*ms)
		r := &Report{Plan: Plan{Seed: 8}, Grants: []*Grant{first, second}}
		test.change(r, first, second)
		r.check()
		found := ""
		if len(r.Violations) > 0 {
			found = r.Violations[0].Check
		}
		want(t, test.name, found, test.want)
	}
}

// TestChecksNodes: the recorder checks the keys of a node when it sees them.
func TestChecksNodes(t *testing.T) {
	node := &simNode{Sim: redlocktest.NewSim("a")}
	defer node.Close()
	for what, c := range map[string]struct {
		look func(r *recorder)
		want string // the check that fails; "": none
	}{
		"another client's token":         {func(r *recorder) { r.see(node, "redlock:x", foreignToken+"1", nil) }, ""},
		"a token that no client wrote":   {func(r *recorder) { r.see(node, "redlock:x", "token", nil) }, "foreign"},
		"a token of no request":          {func(r *recorder) { r.see(node, "redlock:x", "token pid=7", nil) }, "foreign"},
		"a quarantine":                   {func(r *recorder) { r.admitted(node, -shortestQuarantine) }, ""},
		"a quarantine that is too short": {func(r *recorder) { r.admitted(node, 1-shortestQuarantine) }, "quarantine"},
		"a counter":                      {func(r *recorder) { r.counter(node, "x", 1, 150*ms) }, ""},
		"a counter below a token":        {func(r *recorder) { r.counter(node, "x", 0, 150*ms) }, "counters"},
		"copied before the grant":        {func(r *recorder) { r.counter(node, "x", 0, 100*ms) }, ""},
		"the counter of another lock":    {func(r *recorder) { r.counter(node, "y", 0, 150*ms) }, ""},
		"restarted since": {func(r *recorder) {
			r.noteCounterLoss(120 * ms)
			r.counter(node, "x", 0, 150*ms)
		}, ""},
		"restarted before": {func(r *recorder) {
			r.noteCounterLoss(50 * ms)
			r.counter(node, "x", 0, 150*ms)
		}, "counters"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRecorder(&Report{Grants: []*Grant{grantOf(1, 100*ms, 200*ms)}})
			c.look(r)
			found := ""
			for _, v := range r.report.Violations {
				found += v.Check
			}
			want(t, what, found, c.want)
		})
	}
}

const ms = time.Millisecond

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
