package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func testFleetBench(t *testing.T) *fleetBench {
	env := testEnvironment(t)
	return &fleetBench{
		pairBench: &pairBench{opts: options{rounds: 1, slice: 200 * time.Millisecond, hosts: []int{1, 3}}, fleet: &fleet{nodes: env.nodes}, logs: io.Discard},
		env:       env, builds: []build{{fleetNow, env.binary}}, report: &fleetReport{}, rates: map[string]*series{},
	}
}

func TestFleetGrants(t *testing.T) {
	t.Parallel() // nodes and daemons of its own, and no figure is compared with a time
	b := testFleetBench(t)
	withSlices(t, b.opts.slice, func(length time.Duration) error { return testFleetGrants(t, b, length) })
}

func testFleetGrants(t *testing.T, b *fleetBench, length time.Duration) (short error) {
	b.opts.slice, b.report, b.rates = length, &fleetReport{}, map[string]*series{}
	if err := b.grants(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.report.Rates) != 4 {
		t.Fatalf("%d rows, want 4: two contenders with two numbers of hosts", len(b.report.Rates))
	}
	for _, one := range b.report.Rates {
		if one.Clashes > 0 {
			t.Errorf("%+v; want no clash", one)
		}
		if one.Rate == 0 || one.Failed > 0 {
			return fmt.Errorf("%+v; want grants and nothing else", one)
		}
		// A grant and its release are at least a quorum of calls each.
		if least := 2.0 * quorum / nodeCount; one.Calls < least || one.NodeCPU <= 0 {
			t.Errorf("%d hosts, %s: %v calls and %v ms on a node for each grant; want at least %v, and some time", one.Hosts, one.Contender, one.Calls, one.NodeCPU, least)
		}
	}
	return nil
}

func TestFleetLoads(t *testing.T) {
	t.Parallel() // mostly waits
	b := testFleetBench(t)
	b.opts.slice = 500 * time.Millisecond
	if err := b.loads(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := b.report.Loads[0]
	if one.Hosts != 3 || one.Bare <= 0 || one.Idle.CPU <= 0 || one.Idle.Daemon <= 0 || one.Held.Commands <= 0 || one.Waiting.Commands <= 0 {
		t.Errorf("%+v; want three hosts, and figures", one)
	}
}

func TestFleetHandOvers(t *testing.T) {
	t.Parallel() // nodes and daemons of its own, and no figure is compared with a time
	b := testFleetBench(t)
	if err := b.handOvers(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The release and the next acquire cannot reach the nodes and come back any sooner.
	if one := b.report.HandOvers[0]; one.Trips < 1 {
		t.Errorf("%+v; want at least a round trip", one)
	}
	for _, n := range b.env.nodes {
		if n.via != "" {
			t.Errorf("%s is still behind the network", n.Name())
		}
	}
}

// TestFleetFaults also shows that the network recognises a daemon's listener. Otherwise the fault
// would not happen, which is an error.
func TestFleetFaults(t *testing.T) {
	t.Parallel() // mostly waits
	b := testFleetBench(t)
	if err := b.faults(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, one := range b.report.Faults {
		if one.Longest <= 0 || one.Fault != faultUnheard && one.First > 0 {
			t.Errorf("%+v; want a delay, and no grant to a host that cannot run", one)
		}
	}
	if len(b.report.Faults) != 3 {
		t.Errorf("%d faults, want 3", len(b.report.Faults))
	}
}

// Ten hosts with a queue, and a redsync client that stands in none: both get the lock in turn.
func TestFleetForeign(t *testing.T) {
	t.Parallel() // nodes and daemons of its own, and no figure is compared with a time
	b := testFleetBench(t)
	withSlices(t, time.Second, func(length time.Duration) error {
		b.opts.slice, b.report = length, &fleetReport{}
		if err := b.foreigners(t.Context()); err != nil {
			t.Fatal(err)
		}
		one := b.report.Foreign[0]
		if one.Hosts != 10 || one.Clashes > 0 {
			t.Errorf("%+v; want ten hosts, and never a grant to two at once", one)
		}
		if one.Least <= 0 || one.Redsync <= 0 || one.Failed > 0 {
			return fmt.Errorf("%+v; want grants to each of ten hosts and to redsync", one)
		}
		return nil
	})
}

// A host that still waits at the end of the slice has waited until then.
func TestLongestWaitIncludesUnfinishedOnes(t *testing.T) {
	s := sample{pairs: pairs{grants: [][]time.Duration{{time.Second, 2 * time.Second}, nil}}}
	if got := s.longestHostWait(2, 6*time.Second); got != 6*time.Second {
		t.Errorf("a host without a grant waited %v, want the whole slice of 6s", got)
	}
	if got := s.longestHostWait(2, 0); got != 2*time.Second {
		t.Errorf("without an end: %v, want 2s, the last grant to any host", got)
	}
}

func TestWorkBeyondIdle(t *testing.T) {
	got := nodeWork{seconds: 6, scripts: 90, sets: 12, cpu: 0.5}.beyond(nodeWork{seconds: 2, scripts: 20, cpu: 0.1})
	if got.scripts != 30 || got.sets != 12 || math.Abs(got.cpu-0.2) > 1e-9 {
		t.Errorf("got %+v; want 30 scripts, 12 sets and 0.2 s", got)
	}
}

func TestCommandCalls(t *testing.T) {
	const stats = "# Commandstats\r\ncmdstat_set:calls=7,usec=1\r\ncmdstat_evalsha:calls=12,usec=99,usec_per_call=8\r\n"
	for command, want := range map[string]int64{"set": 7, "evalsha": 12, "eval": 0} {
		if got := commandCalls(stats, command); got != want {
			t.Errorf("%s: %d calls, want %d", command, got, want)
		}
	}
}

func TestFleetIdle(t *testing.T) {
	t.Parallel() // nodes and daemons of its own, and no figure is compared with a time
	b := testFleetBench(t)
	b.many, b.opts.slice = 20, 500*time.Millisecond
	if err := b.idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Each host looks at the node once a second: at its clock, its epoch, its INFO.
	if one := b.report.Idle; one.Hosts != 20 || one.Commands < 20 {
		t.Errorf("%+v; want twenty hosts, and more than a command a second of each", one)
	}
}

func TestFleetTargets(t *testing.T) {
	good := &fleetReport{
		Rates:     []fleetRow{{Hosts: 50, Contender: fleetNow, ToTwo: 0.5, Calls: 6, Fairness: 0.9, Longest: 150, Fair: 100}},
		Loads:     []loadRow{{Contender: fleetNow, Hosts: 50, Held: load{Scripts: 10}, Waiting: load{Scripts: 15}, Idle: load{Daemon: 0.002}}},
		HandOvers: []handOverRow{{Contender: fleetNow, Hosts: 10, Trips: 2.2}},
		Faults:    []faultRow{{Contender: fleetNow, Fault: faultKilled, Longest: 300}},
		Foreign:   []foreignRow{{Contender: fleetNow, Hosts: 10, Redsync: 0.5}},
		Idle:      &idleRow{Hosts: 1000, CPU: 0.08},
	}
	bad := &fleetReport{
		Rates:     []fleetRow{{Hosts: 50, Contender: fleetNow, ToTwo: 0.4, Calls: 7, Fairness: 0.8, Longest: 160, Fair: 100}},
		Loads:     []loadRow{{Contender: fleetNow, Hosts: 50, Held: load{Scripts: 10}, Waiting: load{Scripts: 16}, Idle: load{Daemon: 0.003}}},
		HandOvers: []handOverRow{{Contender: fleetNow, Hosts: 10, Trips: 2.3}},
		Faults:    []faultRow{{Contender: fleetNow, Fault: faultKilled, Longest: 301}},
		Foreign:   []foreignRow{{Contender: fleetNow, Hosts: 10, Redsync: 0.4}},
		Idle:      &idleRow{Hosts: 1000, CPU: 0.09},
	}
	for fleet, want := range map[*fleetReport]bool{good: true, bad: false} {
		all := (&report{Fleet: fleet}).fleetTargets()
		if len(all) != 10 {
			t.Errorf("%d targets, want 10", len(all))
		}
		for _, one := range all {
			if one.Pass != want {
				t.Errorf("%+v; want %v", one, want)
			}
		}
	}
}

func TestFleetOptions(t *testing.T) {
	o, err := parseOptions([]string{"-only", fleetPart, "-hosts", "2,10", "-rows", "load,faults"}, io.Discard)
	if err != nil || !slices.Equal(o.hosts, []int{2, 10}) || !o.wantsRow("load") || o.wantsRow("grants") {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-hosts", "2,1"}, {"-hosts", "0"}, {"-hosts", "201"}, {"-hosts", "x"}, {"-only", "fleet,one", "-rows", "load"}, {"-only", fleetPart, "-rows", "work"}} {
		if _, err := parseOptions(args, io.Discard); err == nil {
			t.Errorf("%s: no error", strings.Join(args, " "))
		}
	}
}
