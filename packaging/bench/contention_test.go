package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHandOversCountWaitersOnly(t *testing.T) {
	w := &worker{place: new(place)}
	w.granted(0, time.Millisecond) // the first grant, without an earlier holder
	w.place.leftAt.Store(int64(5 * time.Millisecond))
	w.granted(3*time.Millisecond, 7*time.Millisecond)
	w.granted(6*time.Millisecond, 8*time.Millisecond) // requested after the unlock
	if want := []time.Duration{2 * time.Millisecond}; !slices.Equal(w.handOvers, want) {
		t.Errorf("hand-overs %v, want %v", w.handOvers, want)
	}
	if want := []time.Duration{1e6, 4e6, 2e6}; !slices.Equal(w.locks, want) {
		t.Errorf("locks took %v, want %v", w.locks, want)
	}
}

func TestAlarm(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, d := range []time.Duration{time.Millisecond, 1, 0} {
		start := time.Now()
		a.sleep(d)
		if got := time.Since(start); got < d {
			t.Errorf("slept for %v, want at least %v", got, d)
		}
	}
}

// TestMonitorCountsWhatClientsSend: commands that a script calls do not count.
func TestMonitorCountsWhatClientsSend(t *testing.T) {
	n := testEnvironment(t).nodes[0]
	watch, err := watchCommands(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if r, err := n.Do("EVAL", "for i = 1, 5 do redis.call('GET', KEYS[1]) end return 'done'", "1", "x [0 lua] y"); err != nil || r.Str != "done" {
			t.Fatalf("the script: %+v, %v", r, err)
		}
	}
	n.Do("GET", "a [0 lua] \r\n b")
	if _, err := n.keys("x"); err != nil { // a query of the benchmark itself
		t.Fatal(err)
	}
	if got, err := watch.stop(); err != nil || got != 4 {
		t.Errorf("%d commands, %v; want 4", got, err)
	}
}

func TestMonitorThatEndsEarly(t *testing.T) {
	n := testEnvironment(t).nodes[0]
	watch, err := watchCommands(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	watch.conn.Close()
	if _, err := watch.stop(); err == nil || !strings.Contains(err.Error(), "ended early") {
		t.Errorf("got %v, want an error that says that it ended early", err)
	}
}

func TestContention(t *testing.T) {
	f := testFleet(t)
	entries, err := openAll(t.Context(), f, func(r recipe) bool { return r.name == redsyncGoRedis || r.name == redlockdConns })
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(entries)
	withSlices(t, 400*time.Millisecond, func(length time.Duration) error { return testContention(t, f, entries, length) })
}

func testContention(t *testing.T, f *fleet, entries []entry, length time.Duration) (short error) {
	b := newContentionBench(&pairBench{opts: options{rounds: 1, slice: length}, fleet: f, entries: entries, logs: io.Discard})
	if err := b.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range b.all {
		if one, many := len(c.alone.rounds[0].served), len(c.among.rounds[0].served); one != 1 || many != workersAtOnce {
			t.Errorf("%s: %d workers alone, %d contend; want 1 and %d", c.name, one, many, workersAtOnce)
		}
	}
	rep := &report{}
	rep.addContention(b.all)
	for _, one := range rep.Contention {
		if one.Clashes > 0 {
			t.Errorf("%s: %d clashes", one.Contender, one.Clashes)
		}
		if least := milliseconds(contendedHold); one.Rate == 0 || one.Failed > 0 || one.P50 <= 0 || one.Alone <= 0 || one.Hold < least {
			return fmt.Errorf("%s: %.0f locks/s, %d failures (%s), hand-over %v ms, alone %v ms, hold %v ms; want locks and figures, a hold of %v ms or more",
				one.Contender, one.Rate, one.Failed, one.Failure, one.P50, one.Alone, one.Hold, least)
		}
		// At least one ballot for a lock and its unlock, unless the daemon passes the lock on.
		least := 0.9
		if strings.HasPrefix(one.Contender, "redlockd") {
			least = 0.01 // for confirmations
		}
		if one.Commands < least {
			t.Errorf("%s: %v commands a node for each acquisition: that cannot be", one.Contender, one.Commands)
		}
	}
	if got := len(targetsOf(rep)); got != 5 {
		t.Errorf("%d targets judged, want 5", got)
	}
	return nil
}

// everything grants every lock at once.
type everything struct{}

func (everything) locker(int) locker            { return fakeLocker{} }
func (everything) settle(context.Context) error { return nil }
func (everything) close()                       {}

func TestForeignClashesAreSeen(t *testing.T) {
	b := &pairBench{opts: options{rounds: 1, slice: 10 * time.Millisecond}, fleet: &fleet{}, logs: io.Discard}
	m := mixture{{recipe{name: redsyncGoRedis}, everything{}}, {recipe{name: redlockdConns}, everything{}}}
	s, err := measureForeign(t.Context(), b, m)
	if err != nil {
		t.Fatal(err)
	}
	rep := &report{}
	rep.addForeign(m, s)
	if err := rep.fault(); err == nil || !strings.Contains(err.Error(), "held twice") {
		t.Errorf("64 workers of locks that do not exclude: %v; want a lock that was held twice", err)
	}
	if got := rep.foreignTargets(); len(got) != 1 || got[0].Pass {
		t.Errorf("judged %+v; want a miss", got)
	}
}

func TestForeign(t *testing.T) {
	env := testEnvironment(t)
	withSlices(t, 300*time.Millisecond, func(length time.Duration) error {
		rep := &report{}
		o := options{only: []string{foreign.part}, rounds: 1, slice: length}
		if err := foreignPart(t.Context(), o, env, rep, io.Discard); err != nil {
			t.Fatal(err)
		}
		if err := rep.fault(); err != nil || len(rep.Contention) != 2 {
			t.Fatalf("%v; rows %+v; want two", err, rep.Contention)
		}
		if theirs := rep.Contention[0]; theirs.Failed > 0 || rep.Contention[1].Rate == 0 {
			return fmt.Errorf("%d locks or unlocks failed (%s), %v grants/s to redlockd", theirs.Failed, theirs.Failure, rep.Contention[1].Rate)
		}
		return nil
	})
}

func TestHosts(t *testing.T) {
	t.Parallel() // mostly waits
	b := newHostsBench(&pairBench{opts: options{rounds: 1, slice: 100 * time.Millisecond}, fleet: &fleet{}, logs: io.Discard}, testEnvironment(t))
	b.fleet.nodes = b.env.nodes
	defer func() {
		if err := b.fleet.stop(); err != nil {
			t.Error(err)
		}
	}()
	for range hostCount {
		if _, err := b.startHost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	withSlices(t, b.opts.slice, func(length time.Duration) error {
		b.opts.slice = length
		if err := b.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		rep := &report{}
		if rep.addHosts(b); len(rep.Contention) != 2 || rep.Contention[1].Rate == 0 {
			return fmt.Errorf("rows %+v, want two with grants", rep.Contention)
		}
		return nil
	})
	const ttl = 500 * time.Millisecond
	if err := b.kill(t.Context(), ttl); err != nil {
		t.Fatal(err)
	}
	if n := len(b.fleet.daemons()); n != hostCount || b.started != hostCount+1 {
		t.Errorf("%d daemons of %d are there, want %d of %d", n, b.started, hostCount, hostCount+1)
	}
	rep := &report{}
	rep.addHosts(b)
	if got := len(targetsOf(rep)); got != 3 || rep.fault() != nil {
		t.Errorf("rows %+v, %d targets, %v; want three targets and no fault", rep.Contention, got, rep.fault())
	}
	// The dead host holds the lock until its ttl has passed, which began after the grant before it.
	if d := b.deaths[0]; d.gap < ttl*9/10 || d.gap < d.delay || d.after == 0 || d.failed > 0 {
		t.Errorf("a host died: %+v; want the others to wait for the ttl, and then to go on", d)
	}
}

func TestDeathOfAHost(t *testing.T) {
	start := time.Now()
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := &mortal{ttl: time.Second, killed: after(30), grants: []grant{
		{after(0), 0}, {after(10), 1}, {after(20), 0}, {after(30), 1}, {after(1025), 2}, {after(1040), 0}}}
	m.victim.Store(1)
	got, err := m.death(after(2000))
	want := death{ttl: time.Second, delay: 995 * time.Millisecond, gap: 1005 * time.Millisecond, after: 2}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	m.grants = m.grants[:4]
	if got, _ := m.death(after(2000)); got.delay != 1970*time.Millisecond || got.gap != got.delay || got.after != 0 {
		t.Errorf("no grant after the kill: %+v; want them delayed until the end", got)
	}
	if _, err := new(mortal).death(start); err == nil {
		t.Error("no host was killed, but there is no error")
	}
}

func TestSharesOfWorkersAndHosts(t *testing.T) {
	s := newSeries(scenario{workers: 6}, "x")
	s.rounds[0] = sample{pairs: pairs{elapsed: time.Second, served: []int{10, 20, 5, 10, 20, 5}}}
	got := s.rounds[0]
	if got.fairness() != 0.25 || got.hostFairness(3) != 0.25 {
		t.Errorf("fairness %v between workers, %v between hosts; want 0.25 and 0.25", got.fairness(), got.hostFairness(3))
	}
	half := s.only("y", func(w int) bool { return w%2 == 0 }).rounds[0]
	if half.rate() != 35 || half.fairness() != 0.25 || half.least() != 5 || half.most() != 20 || half.apart() != 15 {
		t.Errorf("every other worker: rate %v, %v of %v; want 35, 5 of 20", half.rate(), half.least(), half.most())
	}
}

func TestContentionTargets(t *testing.T) {
	r := &report{
		Contention: []contentionRow{
			{Part: "contended", Contender: redlockdConns, HandOverRatio: 0.41, AloneRatio: 1.5, RateRatio: 1.69, Commands: 1.2, Least: 20, Most: 21, Fairness: 20. / 21, Apart: 1},
			{Part: "contended", Contender: redlockdTags, HandOverRatio: 0.4, AloneRatio: 1.51, RateRatio: 1.7, Commands: 1.21, Least: 4, Most: 6, Fairness: 4. / 6, Apart: 2},
			{Part: "hosts", Contender: allHosts, RateRatio: 0.49},
			{Part: "foreign", Contender: redsyncGoRedis, Rate: 1},
			{Part: "foreign", Contender: redlockdConns, Rate: 2},
		},
		Hosts:   &hostsRow{Fairness: 0.5, Deaths: 1, TTL: 1000, Delay: 1051, After: 1},
		Readers: &readersRow{Together: 63, Hold: 50, Writers: 3, Max: 60},
	}
	var verdicts []string
	for _, one := range targetsOf(r) {
		verdicts = append(verdicts, map[bool]string{true: "pass", false: "MISS"}[one.Pass])
	}
	want := "MISS pass MISS pass pass pass MISS pass MISS MISS MISS pass MISS MISS pass pass"
	if got := strings.Join(verdicts, " "); got != want {
		t.Errorf("verdicts\n%s, want\n%s", got, want)
	}
	r.Hosts.Delay, r.Hosts.After = 1000, 0
	if got := r.hostsTargets()[2]; got.Pass {
		t.Errorf("no grant after a death: %+v; want a missed target", got)
	}
}
