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
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simulation"
)

var (
	oneSeed   = flag.Int64("seed", -1, "TestSearch: simulate this seed only, and print all of it")
	someSeeds = flag.Int("seeds", 0, "TestSearch: simulate so many seeds (0: as many as the time of a normal run allows)")
)

// searchPlan is the simulation of a seed.
func searchPlan(seed uint64) simulation.Plan {
	options := redlock.Repeatable
	if seed%2 == 1 {
		options = keepingSoon
	}
	return simulation.Plan{
		Seed:    seed,
		Steps:   seed%5 == 4,
		Loss:    seed%3 != 0,
		Fresh:   seed%16 == 15,
		Options: options,

		Restarts: seed%4 == 1,
		Moves:    seed%8 == 3 && seed%3 != 0,
	}
}

// keepingSoon has locks be kept for those who wait much sooner than they would: in
// what is simulated nobody is refused so often.
func keepingSoon(o *redlock.Options, jitter func(string, time.Duration) time.Duration) {
	redlock.Repeatable(o, jitter)
	redlock.KeepSoon(o)
}

// budget is how many seeds a run of the package's tests can afford.
func budget() int {
	switch {
	case *someSeeds > 0:
		return *someSeeds
	case os.Getenv("REDLOCKD_LONG") != "":
		return 30_000
	case raceEnabled:
		return 50
	}
	return 2000
}

// inOrder has what happens at one instant happen in the same order again, until
// the test is over: one thread, and a garbage collector that seldom comes in
// between. (A part of what it finds it frees only the next time: without a limit to the
// memory it comes the more seldom the longer this goes on.)
func inOrder(t *testing.T) {
	procs, percent, limit := runtime.GOMAXPROCS(1), debug.SetGCPercent(800), debug.SetMemoryLimit(1<<30)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// TestSearch looks for a schedule of faults that breaks a promise. A seed that
// finds one prints the schedule, and the command that repeats it.
func TestSearch(t *testing.T) {
	inOrder(t)
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
			t.Fatalf("%d of %d seeds broke a promise: enough", broken, seed+1)
		}
	}
	t.Logf("%d seeds in %v", budget(), time.Since(began).Round(time.Millisecond))
	checkFaults(t, faults)
}

// judge fails the test where a promise was broken.
func judge(t *testing.T, report *simulation.Report) {
	t.Helper()
	if len(report.Violations) == 0 {
		return
	}
	path := keepTrace(t, report)
	t.Errorf("%v\n%s\n%d promises broken; the whole trace is in %s; again with\n  go test ./redlock -run TestSearch -seed %d -v -artifacts",
		report.Violations[0], report.Until(60), len(report.Violations), path, report.Plan.Seed)
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

// checkFaults prints how often what went wrong, and fails where something never
// did: then nothing is known of it.
func checkFaults(t *testing.T, faults map[string]int) {
	t.Helper()
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%9d  %s", faults[kind], kind)
	}
	for _, kind := range simulation.FaultKinds() {
		if faults[kind] == 0 {
			t.Errorf("%s: that never happened", kind)
		}
	}
}

// The same seed is the same simulation, to the nanosecond. (But for what the
// operating system does: a goroutine that it held up for 10 ms loses its place in
// Go's queue. And timers that are due at one instant of fake time ring in an order that
// Go takes from chance, such as those of two attempts that one answer let begin. So one
// of four simulations must repeat another.)
func TestSearchRepeats(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has Go's scheduler choose at random")
	}
	inOrder(t)
	for seed := range uint64(60) {
		all := []*simulation.Report{simulation.Simulate(t, searchPlan(seed))}
		repeats := func() bool {
			again := simulation.Simulate(t, searchPlan(seed))
			all = append(all, again)
			return slices.ContainsFunc(all[:len(all)-1], func(r *simulation.Report) bool { return r.Hash() == again.Hash() })
		}
		again := repeats()
		for !again && len(all) < 4 {
			again = repeats()
		}
		if !again {
			t.Errorf("seed %d: another trace each time: %s", seed, firstDifference(all[2], all[3]))
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
