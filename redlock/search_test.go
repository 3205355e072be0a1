package redlock_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
	"github.com/redlockd/redlockd/redlock/redlocktest/simulation"
)

var (
	oneSeed   = flag.Int64("seed", -1, "TestSearch: simulate this seed only, and print all of it")
	someSeeds = flag.Int("seeds", 0, "TestSearch: simulate this number of seeds (0: as many as the time of a normal run allows)")
)

// searchPlan returns the simulation of a seed.
func searchPlan(seed uint64) simulation.Plan {
	exchanges := seed%16 == 4 || seed%16 == 14
	return simulation.Plan{
		Seed:    seed,
		Steps:   seed%5 == 4,
		Loss:    seed%3 != 0,
		Fresh:   seed%16 == 15,
		Options: exchangingSoon(fillingWindows, exchanges),

		Restarts:   seed%4 == 1 || seed%32 == 4,
		Moves:      seed%8 == 3 && seed%3 != 0,
		Activities: activities(seed),
		Mins:       seed%8 == 5 || seed%32 == 26,

		Exchanges: exchanges,
	}
}

// activities returns what runs besides the clients and the faults of a seed.
func activities(seed uint64) []*simulation.Activity {
	if seed%4 == 3 {
		return []*simulation.Activity{simulation.Lists}
	}
	return nil
}

// fillingWindows changes options so that several groups are in progress on each connection, even
// if the round trip to the node is short.
func fillingWindows(o *redlock.Options, jitter func(string, time.Duration) time.Duration) {
	redlock.FixRandomTimes(o, jitter)
	redlock.FillWindows(o)
}

// scenePlan returns the simulation of a scene. The seed decides the rest.
func scenePlan(scene *simulation.Scene, seed uint64) simulation.Plan {
	return simulation.Plan{Seed: seed, Scene: scene, Options: fillingWindows}
}

// exchangingSoon also changes when the token of a passed lock is exchanged: soon, or never.
func exchangingSoon(options changeOptions, soon bool) changeOptions {
	return func(o *redlock.Options, jitter func(string, time.Duration) time.Duration) {
		options(o, jitter)
		redlock.ExchangeSoon(o, soon)
	}
}

type changeOptions = func(o *redlock.Options, jitter func(string, time.Duration) time.Duration)

// budget returns how many seeds a run of the package's tests can afford.
func budget() int {
	switch {
	case *someSeeds > 0:
		return *someSeeds
	case isThin():
		return effort.Rounds(4, 400)
	case effort.IsLong():
		return 30_000
	}
	return fullSearch
}

// fullSearch is the number of seeds in which each kind of fault happens: the rarest about five times.
const fullSearch = 64

// makeRepeatable makes goroutines run in the same order in each run of a simulation, until the
// test ends. It sets one thread, and a garbage collector that rarely interrupts it. (The
// collector runs less and less often as the heap grows, so the memory has a limit.)
func makeRepeatable(t *testing.T) {
	procs, percent, limit := runtime.GOMAXPROCS(1), debug.SetGCPercent(800), debug.SetMemoryLimit(1<<30)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// TestSearch looks for a schedule of faults that breaks a promise. A seed that finds one prints
// the schedule, and the command that repeats it.
func TestSearch(t *testing.T) {
	makeRepeatable(t)
	if *oneSeed >= 0 {
		plan := searchPlan(uint64(*oneSeed))
		plan.Commands = true
		report := simulation.Simulate(t, plan)
		t.Logf("the whole trace is in %s", keepTrace(t, report))
		judge(t, report)
		return
	}
	faults, broken, began := map[string]int{}, 0, time.Now()
	for seed := range uint64(budget()) {
		report := simulation.Simulate(t, searchPlan(seed))
		for kind, times := range report.Faults {
			faults[kind] += times
		}
		if judge(t, report); len(report.Violations) > 0 {
			broken++
		}
		if broken == 3 {
			t.Fatalf("%d of %d seeds broke a promise; the search ends", broken, seed+1)
		}
	}
	t.Logf("%d seeds in %v", budget(), time.Since(began).Round(time.Millisecond))
	checkFaults(t, faults, budget() >= fullSearch)
}

// TestSearchScenes checks cases that a random search does not reach. In each scene, an attempt
// fails because its lock disappears.
func TestSearchScenes(t *testing.T) {
	makeRepeatable(t)
	for _, scene := range simulation.Scenes() {
		seeds, _ := thinned(20, 0, 10)
		for seed := range uint64(seeds) {
			report := simulation.Simulate(t, scenePlan(scene, seed))
			judge(t, report)
			if !slices.ContainsFunc(report.Trace, func(e simulation.Event) bool { return strings.Contains(e.Note, "too late, or lost it") }) {
				t.Errorf("%s, seed %d: no attempt lost its lock; the whole trace is in %s", scene.Name, seed, keepTrace(t, report))
			}
		}
	}
}

// TestSearchCrowd looks for a lock that stays free while many hosts wait for it, for waiters that are
// overtaken, and for entries that stay in the queues.
func TestSearchCrowd(t *testing.T) {
	needWholeCrowd(t)
	makeRepeatable(t)
	faults, seeds := map[string]int{}, (budget()+63)/64
	for seed := range uint64(seeds) {
		if *oneSeed >= 0 {
			seed = uint64(*oneSeed)
		}
		plan := scenePlan(simulation.Crowd, seed)
		plan.Commands = *oneSeed >= 0
		report := simulation.Simulate(t, plan)
		judge(t, report)
		if *oneSeed >= 0 {
			t.Logf("the whole trace is in %s", keepTrace(t, report))
			return
		}
		for kind, times := range report.Faults {
			faults[kind] += times
		}
	}
	for _, kind := range simulation.CrowdFaults() {
		t.Logf("%9d  %s", faults[kind], kind)
		if budget() >= 30*fullSearch && faults[kind] == 0 {
			t.Errorf("the fault %s never happened", kind)
		}
	}
}

// judge fails the test if a promise was broken.
func judge(t *testing.T, report *simulation.Report) {
	t.Helper()
	if len(report.Violations) == 0 {
		return
	}
	path := keepTrace(t, report)
	t.Errorf("%v\n%s\n%d promises broken; the whole trace is in %s; again with\n  go test ./redlock -run '^%s$' -seed %d -v -artifacts",
		report.Violations[0], report.Until(60), len(report.Violations), path, t.Name(), report.Plan.Seed)
}

// keepTrace writes the whole trace to a file.
func keepTrace(t *testing.T, report *simulation.Report) (path string) {
	t.Helper()
	path = filepath.Join(t.ArtifactDir(), fmt.Sprintf("seed-%d.txt", report.Plan.Seed))
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := report.Write(file); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkFaults prints how often each kind of fault happened. A full search fails if a kind never
// happened, because then it tested nothing for that kind. In a shorter search, rare kinds may be
// missing.
func checkFaults(t *testing.T, faults map[string]int, full bool) {
	t.Helper()
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%9d  %s", faults[kind], kind)
	}
	for _, kind := range simulation.FaultKinds() {
		if full && faults[kind] == 0 {
			t.Errorf("the fault %s never happened", kind)
		}
	}
}

// mostRepeats bounds how often a seed is simulated until a trace is there twice.
const mostRepeats = 30

// The same seed gives the same simulation, to the nanosecond, with two exceptions. If the
// operating system delays a goroutine for 10 ms, it loses its place in Go's queue. And Go fires
// timers that are due at the same instant in a random order. Such a trace is one of many, so the
// simulation runs until two are the same. If they depended on anything else, no two would be.
func TestSearchRepeats(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes Go's scheduler choose at random")
	}
	makeRepeatable(t)
	seeds := rounds(5)
	if testing.Short() {
		seeds = 1
	}
	for seed := range uint64(seeds) {
		all := []*simulation.Report{simulation.Simulate(t, searchPlan(seed))}
		repeats := func() bool {
			again := simulation.Simulate(t, searchPlan(seed))
			all = append(all, again)
			return slices.ContainsFunc(all[:len(all)-1], func(r *simulation.Report) bool { return r.Hash() == again.Hash() })
		}
		again := repeats()
		for !again && len(all) < mostRepeats {
			again = repeats()
		}
		if !again {
			t.Errorf("seed %d: %d times a different trace: %s", seed, len(all), firstDifference(all[0], all[1]))
		}
	}
}

func firstDifference(a, b *simulation.Report) string {
	for i := range min(len(a.Trace), len(b.Trace)) {
		if a.Trace[i] != b.Trace[i] {
			return fmt.Sprintf("line %d of %d:\n%v (%d)\n%v (%d)", i, len(a.Trace), a.Trace[i], a.Trace[i].At, b.Trace[i], b.Trace[i].At)
		}
	}
	return fmt.Sprintf("%d and %d lines", len(a.Trace), len(b.Trace))
}
