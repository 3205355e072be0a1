package redlock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
	"github.com/redlockd/redlockd/redlock/redlocktest/simulation"
)

// plantedBug is a deliberate mistake, in a rule of the library or in the scripts
// of the nodes, and the checks of the simulation that find it.
type plantedBug struct {
	name    string
	checks  string // "exclusion debris": any of them
	rule    string // spoiled; "": none
	variant simredis.Variant
	options func(*redlock.Options) // may be nil

	restarts bool                // every daemon is restarted
	table    simulation.TableBug // and makes this mistake
}

var plantedBugs = []plantedBug{
	{name: "quorum of half the nodes", rule: "quorum of half the nodes", checks: "exclusion"},
	{name: "one token for all attempts", rule: "one token for all attempts", checks: "exclusion leftover"},
	{name: "start read after the answers", rule: "start read after the answers", checks: "exclusion"},
	{name: "drift left out", rule: "drift left out", checks: "exclusion"},
	{name: "no check of elapsed time", rule: "no check of elapsed time", checks: "validity"},
	{name: "acquire without not-after", rule: "acquire without not-after", checks: "order leftover debris"},
	{name: "LOST at the deadline", rule: "LOST at the deadline", checks: "loss"},
	{name: "release at LOST", rule: "release at LOST", checks: "exclusion"},
	{name: "lapsed lease extended", rule: "lapsed lease extended", checks: "finality"},
	{name: "extension that shortens a deadline", rule: "extension that shortens", checks: "shortening"},
	{name: "extension that shortens an expiry", variant: simredis.ExtendShortens, checks: "exclusion"},
	{name: "extension that re-acquires a lock", variant: simredis.ExtendSets, checks: "order exclusion debris"},
	{name: "repair counts at once", rule: "repair counts at once", checks: "exclusion finality quorum order"},
	{name: "release overtakes acquire", rule: "release overtakes acquire", checks: "order debris"},
	{name: "old connection not killed", rule: "old connection not killed", checks: "order debris"},
	{name: "releases not repeated", rule: "releases not repeated", checks: "debris"},
	{name: "DEL without comparing", variant: simredis.ReleaseBlindly, checks: "exclusion"},
	{name: "token from a minority", rule: "token from a minority", checks: "fence"},
	{name: "write-back without ownership", variant: simredis.FenceBlindly, checks: "quorum fence"},
	{name: "no quarantine", options: func(o *redlock.Options) { o.NoQuarantine = true }, checks: "exclusion"},
	{name: "quarantine by uptime", rule: "quarantine by uptime", checks: "quarantine exclusion"},
	{name: "vote of a quarantined node", rule: "vote of a quarantined node", checks: "quorum exclusion"},
	{name: "counters not copied", rule: "counters not copied", checks: "counters fence"},
	{name: "counters copied too early", rule: "counters copied too early", checks: "counters fence"},
	{name: "former node believed", rule: "former node believed", checks: "exclusion quorum"},
	{name: "blind FORCE", variant: simredis.ForceBlindly, checks: "exclusion"},
	{name: "epoch checked on connect only", variant: simredis.IgnoreEpoch, checks: "exclusion"},
	{name: "hand-over without a new fencing token", variant: simredis.HandOverFence, checks: "fence"},
	{name: "semaphore as a counter", variant: simredis.CountPlaces, checks: "exclusion"},
	{name: "reader admitted by a minority", rule: "reader admitted by a minority", checks: "exclusion"},
	{name: "slots=3 beside slots=5", variant: simredis.MixKinds, checks: "exclusion"},
	{name: "wake-up lost between refusal and arming", rule: "bell missing is no news", checks: "wake"},
	{name: "foreign client beside readers", variant: simredis.HideKind, checks: "exclusion"},
	{name: "released lease adopted", table: simulation.AdoptReleased, checks: "debris exclusion liveness"},
	{name: "lapsed lease adopted", rule: "lapsed lease adopted", restarts: true, checks: "exclusion finality"},
	{name: "attempt noted too late", table: simulation.NoteLate, checks: "debris"},
	{name: "vouchers that compare nothing", variant: simredis.CompareNothing, checks: "quarantine exclusion"},
}

// The simulation finds every mistake that was planted, within as many seeds as
// it has in a normal run.
func TestSearchFindsPlantedBugs(t *testing.T) {
	if raceEnabled {
		t.Skip("it takes minutes with the race detector: go test ./redlock -run TestSearch")
	}
	inOrder(t)
	for _, bug := range plantedBugs {
		t.Run(strings.ReplaceAll(bug.name, " ", "_"), func(t *testing.T) {
			began := time.Now()
			seeds, found := bug.find(t)
			if found == nil {
				t.Fatalf("not found in %d seeds", seeds)
			}
			t.Logf("| %-34s | %-10s | %5d | %6.2f |", bug.name, found.Check, seeds, time.Since(began).Seconds())
		})
	}
}

// find looks for the mistake, and returns the promise that it broke and how many
// seeds that took.
func (bug *plantedBug) find(t *testing.T) (seeds int, found *simulation.Violation) {
	for seed := range uint64(budget()) {
		report := simulation.Simulate(t, bug.plan(seed))
		i := slices.IndexFunc(report.Violations, func(v simulation.Violation) bool {
			return slices.Contains(strings.Fields(bug.checks), v.Check)
		})
		if i >= 0 {
			return int(seed) + 1, &report.Violations[i]
		}
	}
	return budget(), nil
}

// plan is the simulation of a seed with the mistake planted.
func (bug *plantedBug) plan(seed uint64) simulation.Plan {
	plan := searchPlan(seed)
	repeatable := plan.Options
	plan.Options = func(o *redlock.Options, jitter func(string, time.Duration) time.Duration) {
		repeatable(o, jitter)
		if bug.rule != "" {
			redlock.Without(o, bug.rule)
		}
		if bug.options != nil {
			bug.options(o)
		}
	}
	if bug.restarts || bug.table != "" {
		plan.Restarts, plan.Table = true, bug.table
	}
	if bug.variant != "" {
		plan.Sim = func(s *redlocktest.Sim) { s.Plant(bug.variant) }
	}
	return plan
}
