package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

const networkPart = "network"

// The contenders that differ only over a network.
const (
	withoutWait = "redlockd, UNLOCK wait=0"
	twoHosts    = "redlockd, two hosts"
	bare        = "a bare queue, no nodes"
)

// networkTest is one row of the table for each contender.
type networkTest struct {
	scenario
	key        string
	contenders []string
	long       bool // longer slices, so that fairness shows
}

// forPairs are the contenders of most rows.
var forPairs = []string{redsyncGoRedis, redlockdConns, beforeConns}

var networkTests = []networkTest{
	{key: "fresh", contenders: forPairs, scenario: scenario{title: "64 workers, a fresh name each time", workers: workersAtOnce}},
	// With fewer workers the network is the bottleneck, also on a machine whose processors 64
	// workers keep busy.
	{key: "fresh-16", contenders: forPairs, scenario: scenario{title: "16 workers, a fresh name each time", workers: 16}},
	{key: "repeated", contenders: forPairs, scenario: scenario{title: "64 workers, each its own name again", workers: workersAtOnce, repeat: true}},
	{key: "one", contenders: append(slices.Clone(forPairs), withoutWait), scenario: scenario{title: "1 worker, a fresh name each time", workers: 1}},
	{key: "work", contenders: append(slices.Clone(forPairs), twoHosts, bare), long: true, scenario: scenario{title: "64 waiters, one name, 1 ms of work", workers: workersAtOnce, shared: true, hold: contendedHold}},
	{key: "no-work", contenders: append(slices.Clone(forPairs), bare), long: true, scenario: scenario{title: "64 waiters, one name, no work", workers: workersAtOnce, shared: true}},
}

// networkRowNames are the words of -rows for part network.
func networkRowNames() (names []string) {
	for _, test := range networkTests {
		names = append(names, test.key)
	}
	return names
}

func (o options) wantsRow(name string) bool { return len(o.rows) == 0 || slices.Contains(o.rows, name) }

// networkRow has the results of one contender in one test.
type networkRow struct {
	Test      string  `json:"test"`
	Scenario  string  `json:"scenario"`
	Contender string  `json:"contender"`
	Rounds    int     `json:"rounds"`
	Rate      float64 `json:"per_second"`
	P50       float64 `json:"pair_p50_ms"`
	P99       float64 `json:"pair_p99_ms"`
	Trips     float64 `json:"pair_p50_round_trips"`
	HandOver  float64 `json:"hand_over_p50_ms"` // 0: no worker waited
	RateRatio float64 `json:"rate_ratio"`       // relative to redsync
	Network   float64 `json:"network_cores"`    // cores that the emulated network kept busy

	// With two hosts.
	HostRatio   float64 `json:"one_host_ratio,omitempty"` // locks/s relative to one host with all workers
	Fairness    float64 `json:"host_fairness,omitempty"`  // fewest / most grants of a host
	LongestWait float64 `json:"host_longest_wait_ms,omitempty"`

	Skipped string `json:"skipped,omitempty"` // why it was not measured
	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"` // the first failure
	Clashes int    `json:"clashes"`           // number of times that a lock was held twice
}

// networkBench measures all contenders over a network, in alternation.
type networkBench struct {
	*pairBench
	skipped map[string]string // reasons why this daemon cannot serve a contender
	series  map[string]*series
}

func seriesKey(test, contender string) string { return test + "\x00" + contender }

func networkedPart(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) (err error) {
	if !o.wants(networkPart) {
		return nil
	}
	delays, err := startNetwork(ctx, env.dir, o.rtt, env.nodes)
	if err != nil {
		return err
	}
	defer delays.kill()
	rep.Network = &delays.networkFigures
	f := &fleet{nodes: env.nodes, delays: delays}
	if err := f.start(ctx, env, o.before); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	for i := range 2 {
		d, err := env.startDaemon(ctx, fmt.Sprintf("network-host%d", i+1))
		if err != nil {
			return err
		}
		f.hosts = append(f.hosts, d)
	}
	b := &networkBench{pairBench: &pairBench{opts: o, fleet: f, logs: logs}, skipped: map[string]string{}, series: map[string]*series{}}
	defer func() { closeAll(b.entries) }()
	if err := b.open(ctx, env); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	rep.addNetwork(b)
	return nil
}

// open sets up all contenders except those that this daemon cannot serve.
func (b *networkBench) open(ctx context.Context, env *environment) (err error) {
	b.entries, err = openAll(ctx, b.fleet, func(r recipe) bool {
		return slices.Contains(forPairs, r.name) && (!r.old || b.fleet.before != nil)
	})
	if err != nil {
		return err
	}
	h, err := openHosts(ctx, b.fleet.hosts, workersAtOnce)
	if err != nil {
		return err
	}
	b.entries = append(b.entries, entry{recipe: recipe{name: twoHosts}, contender: h})
	q, err := openQueue(ctx, env.dir)
	if err != nil {
		return err
	}
	b.entries = append(b.entries, entry{recipe: recipe{name: bare}, contender: q})
	c, err := openRaw(ctx, b.fleet.daemon, " wait=0")
	var no refusal
	if errors.As(err, &no) {
		b.skipped[withoutWait] = no.Error()
		return nil
	}
	if err != nil {
		return err
	}
	b.entries = append(b.entries, entry{recipe: recipe{name: withoutWait}, contender: c})
	return nil
}

// measure gives every contender a slice of each test in each round.
func (b *networkBench) measure(ctx context.Context) error {
	tests := slices.DeleteFunc(slices.Clone(networkTests), func(test networkTest) bool { return !b.opts.wantsRow(test.key) })
	for _, e := range b.entries {
		first := slices.IndexFunc(tests, func(test networkTest) bool { return slices.Contains(test.contenders, e.name) })
		if first < 0 {
			continue
		}
		if _, err := b.slice(ctx, e, tests[first].scenario, warmUp, nil); err != nil {
			return err
		}
	}
	for round := range b.opts.rounds {
		fmt.Fprintf(b.logs, "network of %v: round %d of %d\n", b.opts.rtt, round+1, b.opts.rounds)
		for _, test := range tests {
			for _, e := range b.entries {
				if !slices.Contains(test.contenders, e.name) {
					continue
				}
				length := b.opts.slice
				if test.long {
					length *= contendedSlices
				}
				got, err := b.slice(ctx, e, test.scenario, length, nil)
				if err != nil {
					return err
				}
				key := seriesKey(test.key, e.name)
				if b.series[key] == nil {
					b.series[key] = newSeries(test.scenario, e.name)
				}
				b.series[key].rounds[round] = got
			}
		}
	}
	return nil
}

// rawContender speaks the protocol itself, for options that the Go client may not have.
type rawContender struct {
	conn      *rawConn
	unlockEnd string // options of UNLOCK, each after a space
}

// openRaw tries the options on a name of its own. If the daemon does not know them, the error is a
// refusal.
func openRaw(ctx context.Context, d *daemon, unlockEnd string) (contender, error) {
	conn, err := dialRaw(ctx, d.socket)
	if err != nil {
		return nil, err
	}
	c := &rawContender{conn, unlockEnd}
	l, err := c.lock(ctx, "try"+fmt.Sprint(time.Now().UnixNano()), pairTTL)
	if err == nil {
		err = l.Unlock(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *rawContender) locker(int) locker            { return c } // for one worker only
func (c *rawContender) settle(context.Context) error { return nil }
func (c *rawContender) close()                       { c.conn.Close() }

func (c *rawContender) lock(_ context.Context, name string, ttl time.Duration) (held, error) {
	if err := c.conn.ask("LOCK %s ttl=%dms", name, ttl.Milliseconds()); err != nil {
		return nil, err
	}
	return rawLock{c, name}, nil
}

type rawLock struct {
	*rawContender
	name string
}

func (l rawLock) Unlock(context.Context) error { return l.conn.ask("UNLOCK %s%s", l.name, l.unlockEnd) }

// longestHostWait returns the longest time without a grant to one of the hosts, to which workers
// are assigned in turn. The time ends with the last grant to any host, or at the end of the slice
// if that is given.
func (s sample) longestHostWait(hosts int, end time.Duration) time.Duration {
	byHost := make([][]time.Duration, hosts)
	last := end
	for w, grants := range s.grants {
		byHost[w%hosts] = append(byHost[w%hosts], grants...)
		for _, at := range grants {
			last = max(last, at)
		}
	}
	longest := time.Duration(0)
	for _, grants := range byHost {
		slices.Sort(grants)
		before := time.Duration(0)
		for _, at := range append(grants, last) {
			longest = max(longest, at-before)
			before = at
		}
	}
	return longest
}

func (r *report) addNetwork(b *networkBench) {
	for _, test := range networkTests {
		base := b.series[seriesKey(test.key, redsyncGoRedis)]
		for _, contender := range test.contenders {
			one := networkRow{Test: test.key, Scenario: test.title, Contender: contender, Skipped: b.skipped[contender]}
			if s := b.series[seriesKey(test.key, contender)]; s != nil {
				one.fill(s, base, r.Network.P50)
				if contender == twoHosts {
					one.fillHosts(s, b.series[seriesKey(test.key, redlockdConns)])
				}
			} else if one.Skipped == "" || !b.opts.wantsRow(test.key) {
				continue // it was not selected
			}
			r.NetworkRows = append(r.NetworkRows, one)
		}
	}
}

// fill takes medians over the rounds.
func (n *networkRow) fill(s, base *series, trip float64) {
	sum := s.total()
	n.Rounds, n.Rate, n.P50, n.P99 = len(s.rounds), s.medianOf(sample.rate), s.medianOf(sample.p50), s.medianOf(sample.p99)
	n.Trips, n.HandOver = n.P50/trip, s.medianOf(sample.handOverP50)
	n.RateRatio = s.ratioTo(base, sample.rate)
	n.Network = s.medianOf(func(got sample) float64 { return got.delays.Seconds() / got.elapsed.Seconds() })
	n.Failed, n.Clashes = sum.failed, sum.clashes
	if sum.failure != nil {
		n.Failure = sum.failure.Error()
	}
}

func (n *networkRow) fillHosts(s, oneHost *series) {
	n.HostRatio = s.ratioTo(oneHost, sample.rate)
	n.Fairness = s.medianOf(func(got sample) float64 { return got.hostFairness(2) })
	for _, got := range s.rounds {
		n.LongestWait = max(n.LongestWait, milliseconds(got.longestHostWait(2, 0)))
	}
}

func (r *report) printNetwork(w io.Writer) {
	if r.Network == nil {
		return
	}
	fmt.Fprintf(w, "\n%s.\nOther processes kept %.2f CPUs busy meanwhile. A network between everybody and the nodes, emulated by one process in user space, the same for all:\n", r.Machine, r.Others)
	fmt.Fprintf(w, "wanted are %.2f ms for a round trip, measured %.2f ms at p50 and %.2f ms at p99 (%.2f ms without it). It takes %.0f µs of CPU for a round trip.\nRound trips are p50 of a pair by the measured round trip. Ratios are against %s.\n\n",
		r.Network.Wanted, r.Network.P50, r.Network.P99, r.Network.Direct, r.Network.CPU, baseline)
	r.networkTable().print(w)
	for _, one := range r.NetworkRows {
		if one.Failed > 0 {
			fmt.Fprintf(w, "\n%s, %s: %d locks or unlocks failed, the first: %s\n", one.Scenario, one.Contender, one.Failed, one.Failure)
		}
		if one.Skipped != "" {
			fmt.Fprintf(w, "\n%s, %s: skipped, this daemon answered %s\n", one.Scenario, one.Contender, one.Skipped)
		}
	}
}

func (r *report) networkTable() *table {
	t := &table{header: []string{"scenario", "contender", "locks/s", "pair p50 ms", "p99 ms", "round trips", "hand-over p50 ms", "locks/s ×", "one host ×", "least/most host", "longest wait ms", "network CPUs"}}
	previous := ""
	for _, one := range r.NetworkRows {
		if one.Skipped != "" {
			continue
		}
		shown := one.Scenario
		if shown == previous {
			shown = ""
		}
		previous = one.Scenario
		t.add(shown, one.Contender, number(one.Rate), number(one.P50), number(one.P99), number(one.Trips), number(one.HandOver),
			number(one.RateRatio), number(one.HostRatio), number(one.Fairness), number(one.LongestWait), number(one.Network))
	}
	return t
}

// findNetwork returns a row that was measured.
func (r *report) findNetwork(test, contender string) (networkRow, bool) {
	for _, one := range r.NetworkRows {
		if one.Test == test && one.Contender == contender && one.Skipped == "" {
			return one, true
		}
	}
	return networkRow{}, false
}

// accuracy is how much the p50 of the network's round trip may differ from the wanted one.
const accuracy = 0.1 // ms

func (r *report) networkTargets() []target {
	if r.Network == nil {
		return nil
	}
	off := max(r.Network.P50-r.Network.Wanted, r.Network.Wanted-r.Network.P50)
	all := []target{atMost("the emulated network: p50 of a round trip is off by", off, accuracy, " ms")}
	judge := func(test, contender string, targets ...func(networkRow) target) {
		if one, ok := r.findNetwork(test, contender); ok {
			for _, t := range targets {
				all = append(all, t(one))
			}
		}
	}
	judge("fresh", redlockdConns, func(n networkRow) target {
		return atMost("64 workers, a fresh name each time: p50 of a pair", n.Trips, 2.4, " round trips")
	})
	judge("work", redlockdConns, func(n networkRow) target {
		return atLeast("64 waiters of one host, 1 ms of work: locks/s", n.Rate, 750, "")
	}, func(n networkRow) target {
		return atLeast("64 waiters of one host, 1 ms of work: locks/s", n.RateRatio, 4, " × "+baseline)
	}, func(n networkRow) target {
		what := "hand-over on one host: p50"
		if q, ok := r.findNetwork("work", bare); ok {
			what += fmt.Sprintf(" (a bare queue: %.2f ms)", q.HandOver)
		}
		return atMost(what, n.HandOver, 0.1, " ms")
	})
	judge("no-work", redlockdConns, func(n networkRow) target {
		return atLeast("64 waiters of one host, no work: locks/s", n.Rate, 10_000, "")
	})
	judge("work", twoHosts, func(n networkRow) target {
		return atLeast("two hosts of 32 waiters: locks/s", n.HostRatio, 0.6, " × one host with all of them")
	}, func(n networkRow) target {
		return atLeast("two hosts of 32 waiters: least / most served host", n.Fairness, 0.8, "")
	}, func(n networkRow) target {
		return atMost("two hosts of 32 waiters: longest wait of a host", n.LongestWait, 100+3*r.Network.Wanted, " ms")
	})
	judge("one", withoutWait, func(n networkRow) target {
		return atMost("1 worker, UNLOCK wait=0: p50 of a pair", n.Trips, 1.1, " round trips")
	})
	return all
}
