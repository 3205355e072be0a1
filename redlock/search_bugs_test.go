package redlock_test

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
	"github.com/redlockd/redlockd/redlock/redlocktest/planted"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
	"github.com/redlockd/redlockd/redlock/redlocktest/simulation"
)

// plantedBug is a deliberate mistake in the source of the library or in the scripts of the nodes, with the
// checks of the simulation that find it.
type plantedBug struct {
	name    string
	checks  string // "exclusion debris": one of them is enough
	source  string // the mistake of the source; "": none
	variant simredis.Variant
	options func(*redlock.Options) // may be nil

	restarts bool                // each daemon is restarted
	table    simulation.TableBug // the mistake of the daemons' state file
	scene    *simulation.Scene   // nil: random faults

	from uint64 // a seed that finds it, where the search begins; 0: the search begins with the first seed

	// rare: few seeds find it, and which ones changes with every change of the algorithm. So it is
	// searched for with REDLOCKD_LONG=1 only, from the first seed on. So are mistakes that a crowd finds,
	// because it takes seconds.
	rare bool
}

var plantedBugs = []plantedBug{
	{name: "quorum of half the nodes", source: "quorum of half the nodes", checks: "exclusion"},
	{name: "one token for all attempts", source: "one token for all attempts", checks: "exclusion leftover", from: 2},
	{name: "start read after the answers", source: "start read after the answers", checks: "exclusion", rare: true},
	{name: "drift left out", source: "drift left out", checks: "exclusion", rare: true},
	{name: "no check of elapsed time", source: "no check of elapsed time", checks: "validity", from: 13},
	{name: "acquire without not-after", source: "acquire without not-after", checks: "order leftover debris", from: 15},
	{name: "LOST at the deadline", source: "LOST at the deadline", checks: "loss", from: 3},
	{name: "release at LOST", source: "release at LOST", checks: "exclusion"},
	{name: "expired lease extended", source: "expired lease extended", checks: "finality", from: 91},
	{name: "extension that shortens a deadline", source: "extension that shortens", checks: "shortening"},
	{name: "extension that shortens an expiry", variant: simredis.ExtendShortens, checks: "exclusion", from: 6},
	{name: "extension that re-acquires a lock", variant: simredis.ExtendSets, checks: "order exclusion debris", from: 10},
	{name: "repair counts at once", source: "repair counts at once", checks: "exclusion finality quorum order", rare: true},
	{name: "release overtakes acquire", source: "release overtakes acquire", checks: "order debris"},
	{name: "old connection not killed", source: "old connection not killed", checks: "order debris", rare: true},
	{name: "later groups counted as not sent", source: "later groups counted as not sent", checks: "debris order leftover", options: redlock.FillWindows, rare: true},
	{name: "releases not repeated", source: "releases not repeated", checks: "debris", from: 3},
	{name: "DEL without comparing", variant: simredis.ReleaseBlindly, checks: "exclusion"},
	{name: "token from a minority", source: "token from a minority", checks: "fence"},
	{name: "write-back without ownership", variant: simredis.FenceBlindly, scene: simulation.ForcedWriteBack, checks: "fence"},
	{name: "no quarantine", options: func(o *redlock.Options) { o.NoQuarantine = true }, checks: "exclusion", from: 13},
	{name: "quarantine by uptime", source: "quarantine by uptime", checks: "quarantine exclusion", from: 2},
	{name: "vote of a quarantined node", source: "vote of a quarantined node", checks: "quorum exclusion"},
	{name: "counters not copied", source: "counters not copied", checks: "counters fence", from: 67},
	{name: "counters copied too early", source: "counters copied too early", checks: "counters fence", rare: true},
	{name: "former node believed", source: "former node believed", checks: "exclusion quorum", from: 67},
	{name: "blind FORCE", variant: simredis.ForceBlindly, checks: "exclusion", from: 77},
	{name: "epoch checked on connect only", variant: simredis.IgnoreEpoch, checks: "exclusion", from: 91},
	{name: "hand-over without a new fencing token", variant: simredis.HandOverFence, checks: "fence"},
	{name: "semaphore as a counter", variant: simredis.CountHolders, checks: "exclusion", from: 6},
	{name: "reader admitted by a minority", source: "reader admitted by a minority", checks: "exclusion", from: 1},
	{name: "slots=3 beside slots=5", variant: simredis.MixKinds, checks: "exclusion"},
	{name: "a release calls nobody", variant: simredis.ReleaseCallsNobody, checks: "wake"},
	{name: "a turn does not end", variant: simredis.TurnNeverPasses, scene: simulation.Crowd, checks: "idle", rare: true},
	{name: "an entry stays after a grant", variant: simredis.EntryStays, scene: simulation.Crowd, checks: "entry called", rare: true},
	{name: "END_WAIT is ignored", variant: simredis.EndWaitIgnored, scene: simulation.Crowd, checks: "entry called", rare: true},
	{name: "tickets are ignored", variant: simredis.TicketsIgnored, scene: simulation.Crowd, checks: "overtaken", rare: true},
	{name: "dead hosts are called", variant: simredis.DeadHostCalled, scene: simulation.Crowd, checks: "called", rare: true},
	{name: "only the next waiter is told when to ask", variant: simredis.OnlyNextTold, scene: simulation.Crowd, checks: "idle", rare: true},
	{name: "called twice for one turn", variant: simredis.CalledTwice, scene: simulation.Crowd, checks: "twice", rare: true},
	{name: "a turn moves to one that is not called", variant: simredis.TurnMoves, scene: simulation.Crowd, checks: "twice", rare: true},
	{name: "foreign client beside readers", variant: simredis.HideKind, checks: "exclusion"},
	{name: "released lease adopted", table: simulation.AdoptReleased, checks: "adoption debris exclusion liveness"},
	{name: "expired lease adopted", source: "expired lease adopted", restarts: true, checks: "exclusion finality", from: 18},
	{name: "attempt noted too late", table: simulation.RecordAttemptLate, checks: "debris", from: 17},
	{name: "pass window from the answer", source: "pass window from the answer", checks: "window", from: 500},
	{name: "pass window not read again", source: "pass window not read again", checks: "window", from: 83},
	{name: "pass to a client that is gone", source: "pass to a client that is gone", checks: "gone", from: 5},
	{name: "write-back to the start of the block", source: "write-back to the start of the block", checks: "quorum fence"},
	{name: "block used after a loss", source: "block used after a loss", checks: "quorum fence", rare: true},
	{name: "FORCE that does not wait", source: "FORCE that does not wait", checks: "force", rare: true},
	{name: "confirmation in spite of FORCE", variant: simredis.ConfirmForced, checks: "force", rare: true},
	{name: "passes not counted in a row", table: simulation.IgnorePasses, checks: "starvation"},
	{name: "pass noted too late", table: simulation.RecordPassLate, checks: "adoption"},
	{name: "downgraded lease adopted as exclusive", table: simulation.AdoptAsExclusive, checks: "adoption exclusion", from: 23},
	{name: "downgrade confirmed by a minority", source: "downgrade by a minority", checks: "downgrade", rare: true},
	{name: "downgrade asked for once", source: "downgrade asked for once", checks: "downgrade", rare: true},
	{name: "downgraded lease repaired as exclusive", source: "repaired as exclusive", checks: "downgrade", from: 83},
	{name: "kept lock released when its holder ends", table: simulation.ReleaseAtEnd, checks: "min", rare: true},
	{name: "min forgotten by a restart", table: simulation.ForgetMin, checks: "min", rare: true},
	{name: "kept lock not released after min", table: simulation.KeepForever, checks: "liveness debris", from: 5},
	{name: "list that walks a node too few", source: "list of a node too few", checks: "list", from: 171},
	{name: "minority taken for a holder", source: "minority taken for a holder", checks: "list", from: 75},
	{name: "token abandoned that was passed on", table: simulation.AbandonPassed, checks: "quorum exclusion finality order", from: 63},
	{name: "block handed out again by a restart", source: "block handed out again", restarts: true, checks: "quorum fence window", rare: true},
	{name: "lost lease passed on", source: "lost lease passed on", checks: "lost", from: 76},
	{name: "exchange in spite of FORCE", variant: simredis.ExchangeForced, checks: "force", rare: true},
	{name: "exchange noted too late", table: simulation.RecordExchangeLate, checks: "adoption", rare: true},
	{name: "vouchers that compare nothing", variant: simredis.CompareNothing, checks: "quarantine exclusion", from: 56},
}

var findFrom = flag.Bool("from", false, "TestSearchFindsPlantedBugs: print what plantedBug.from should be")

// nearby is the number of seeds, from plantedBug.from on, that must be enough. Many, because each
// change of the algorithm makes other seeds find a mistake, and because on a busy machine a seed does
// not always repeat its simulation (see TestSearchRepeats).
const nearby = 120

// The simulation finds each planted mistake that package effort chooses. With -seeds, or if the tests may
// take hours, it finds all of them, and each search begins with the first seed.
func TestSearchFindsPlantedBugs(t *testing.T) {
	if raceEnabled {
		t.Skip("it takes minutes with the race detector: go test ./redlock -run TestSearch")
	}
	makeRepeatable(t)
	var binary string
	if planted.Name() == "" {
		binary = planted.Build(t, mistakes)
	}
	isFull, frequent := effort.IsLong() || *someSeeds > 0 || *findFrom, 0
	for _, bug := range plantedBugs {
		if !bug.rare {
			frequent++
		}
		if !isFull && (bug.rare || !effort.Chooses(frequent)) {
			continue
		}
		name := strings.ReplaceAll(bug.name, " ", "_")
		t.Run(name, func(t *testing.T) {
			if bug.source != planted.Name() { // another process has it
				args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { // files that this process writes
					return strings.HasPrefix(arg, "-test.testlogfile") || strings.HasPrefix(arg, "-test.cover")
				})
				args = append(args, "-test.run=^TestSearchFindsPlantedBugs$/^"+regexp.QuoteMeta(name)+"$", "-test.v")
				out, err := planted.Command(t, binary, bug.source, args...).CombinedOutput()
				if t.Logf("%s", out); err != nil {
					t.Error(err)
				}
				return
			}
			if *findFrom {
				t.Logf("%s: from: %d", bug.name, bug.reliableSeed(t))
				return
			}
			from, seeds := bug.from, nearby
			if from == 0 || isFull {
				from, seeds = 0, budget()
			}
			began := time.Now()
			for i := range seeds {
				seed := from + uint64(i)
				if found := bug.find(t, seed); found != nil {
					t.Logf("| %-38s | %-10s | %5d | %6.2f |", bug.name, found.Check, seed+1, time.Since(began).Seconds())
					return
				}
			}
			t.Errorf("not found by %d seeds from %d on. If the simulation has changed, find another seed for the table with\n  go test ./redlock -v -run '^TestSearchFindsPlantedBugs$/^%s$' -from",
				seeds, from, name)
		})
	}
}

// A test of a single scene finds each of these mistakes, which the search does not find.
func TestScenesFindMistakes(t *testing.T) {
	if raceEnabled {
		t.Skip("it takes minutes with the race detector: go test ./redlock -run TestScenesFindMistakes")
	}
	for i, by := range []struct {
		mistake, test, says string
		times               int
	}{
		{"repaired node confirms a pass", "TestPassWithRepairedNodes", "got true, want false", 1},
		{"new without the wait", "TestLateHostAndNewHost", "while the old host holds it", 2},
		{"new without the counters", "TestLateHostAndNewHost", "the fencing token is not larger", 2},
		{"replaced list taken for new", "TestReplacedListIsNotNew", "its list of nodes was replaced", 18},
		{"stage of a restarted node forgotten", "TestReplacedListIsNotNew", "its list of nodes was replaced", 6},
		{"unheard node not awaited", "TestUnheardNode", "heard of no node for longer", 1},
		{"change that is over begins again", "TestChangeIsOver", "were changed back since", 1},
	} {
		if !effort.Chooses(3 * i) {
			continue
		}
		out, err := planted.Command(t, planted.Build(t, mistakes), by.mistake, "-test.run=^"+by.test+"$").CombinedOutput()
		if err == nil || strings.Count(string(out), by.says) != by.times {
			t.Errorf("%s: %v, want %q %d times: %s", by.mistake, err, by.says, by.times, out)
		}
	}
}

// find simulates one seed with the mistake. It returns the broken promise; nil: none that this
// mistake is known to break.
func (bug *plantedBug) find(t *testing.T, seed uint64) *simulation.Violation {
	report := simulation.Simulate(t, bug.plan(seed))
	i := slices.IndexFunc(report.Violations, func(v simulation.Violation) bool {
		return slices.Contains(strings.Fields(bug.checks), v.Check)
	})
	if i < 0 {
		return nil
	}
	return &report.Violations[i]
}

// reliableSeed returns the first seed that finds the mistake in each of ten runs. (See
// TestSearchRepeats.)
func (bug *plantedBug) reliableSeed(t *testing.T) uint64 {
	const most = 30_000
	for seed := range uint64(most) {
		times := 0
		for times < 10 && bug.find(t, seed) != nil {
			times++
		}
		if times == 10 {
			return seed
		}
	}
	t.Fatalf("no seed below %d finds it each time", most)
	return 0
}

// plan returns the simulation of a seed with the mistake planted.
func (bug *plantedBug) plan(seed uint64) simulation.Plan {
	plan := searchPlan(seed)
	if bug.scene != nil {
		plan = scenePlan(bug.scene, seed)
	}
	repeatable := plan.Options
	plan.Options = func(o *redlock.Options, jitter func(string, time.Duration) time.Duration) {
		repeatable(o, jitter)
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
