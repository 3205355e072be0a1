package main

import (
	"fmt"
	"io"
	"slices"
)

// fleetReport has the results of part fleet.
type fleetReport struct {
	Rates     []fleetRow      `json:"rates,omitempty"`
	Loads     []loadRow       `json:"loads,omitempty"`
	HandOvers []handOverRow   `json:"hand_overs,omitempty"`
	Network   *networkFigures `json:"network,omitempty"` // between the hosts of HandOvers and the nodes
	Faults    []faultRow      `json:"faults,omitempty"`
	Foreign   []foreignRow    `json:"foreign,omitempty"`
	Idle      *idleRow        `json:"idle,omitempty"`
}

// fleetRow has the results of one contender with one waiter on each of a number of hosts.
type fleetRow struct {
	Hosts     int     `json:"hosts"`
	Contender string  `json:"contender"`
	Rounds    int     `json:"rounds"`
	Rate      float64 `json:"per_second"`
	ToTwo     float64 `json:"to_two_hosts"` // relative to two hosts of the same contender; 0: these were not measured
	ToRedsync float64 `json:"to_redsync"`
	Calls     float64 `json:"calls"`       // on a node for each grant
	NodeCPU   float64 `json:"node_cpu_ms"` // processor time of a node for each grant
	DaemonCPU float64 `json:"daemon_cpu_ms"`
	Fairness  float64 `json:"fairness"`        // least / most served host
	Longest   float64 `json:"longest_wait_ms"` // of the round with the longest one relative to Fair
	Fair      float64 `json:"fair_wait_ms"`    // hosts × mean cycle, of the same round
	Failed    int     `json:"failed"`
	Failure   string  `json:"failure,omitempty"`
	Clashes   int     `json:"clashes"`
}

// allowedWait is the longest wait relative to the one with a perfect order.
const allowedWait = 1.5

// loadRow is what a fleet costs that takes no locks; medians over the rounds.
type loadRow struct {
	Contender string  `json:"contender"`
	Hosts     int     `json:"hosts"`
	Bare      float64 `json:"bare_node_cores"` // of a node without any host
	Idle      load    `json:"idle"`
	Held      load    `json:"held"` // by one more host
	Waiting   load    `json:"waiting"`
}

// handOverRow has hand-overs between hosts over a network.
type handOverRow struct {
	Contender string  `json:"contender"`
	Hosts     int     `json:"hosts"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Trips     float64 `json:"p50_round_trips"`
	Rate      float64 `json:"per_second"`
}

// faultRow is how long a fault of the first waiting host keeps the lock from the next one.
type faultRow struct {
	Contender string  `json:"contender"`
	Fault     string  `json:"fault"`
	Times     int     `json:"times"`
	Median    float64 `json:"median_ms"`
	Longest   float64 `json:"longest_ms"`
	First     int     `json:"first"` // how often the host with the fault got it
}

func (f *fleetReport) addRates(b *fleetBench, contenders []string) {
	for _, n := range b.opts.hosts {
		for _, contender := range contenders {
			s := b.rates[fleetKey(contender, n)]
			one := fleetRow{
				Hosts: n, Contender: contender, Rounds: len(s.rounds), Rate: s.medianOf(sample.rate),
				ToRedsync: s.ratioTo(b.rates[fleetKey(fleetRedsync, n)], sample.rate),
				Calls:     s.medianOf(sample.callsEach), NodeCPU: s.medianOf(sample.nodeCPUEach), DaemonCPU: s.medianOf(sample.daemonCPUEach),
				Fairness: s.medianOf(sample.fairness),
			}
			if two := b.rates[fleetKey(contender, 2)]; two != nil {
				one.ToTwo = s.ratioTo(two, sample.rate)
			}
			for _, got := range s.rounds {
				wait, fair := milliseconds(got.longestHostWait(n, contendedSlices*b.opts.slice)), 1000*float64(n)/max(got.rate(), 1e-9)
				if one.Fair == 0 || wait/fair > one.Longest/one.Fair {
					one.Longest, one.Fair = wait, fair
				}
			}
			sum := s.total()
			one.Failed, one.Clashes = sum.failed, sum.clashes
			if sum.failure != nil {
				one.Failure = sum.failure.Error()
			}
			f.Rates = append(f.Rates, one)
		}
	}
}

// grantsOrOne is the number of grants to divide by.
func (s sample) grantsOrOne() float64 { return float64(max(1, len(s.latencies))) }

func (s sample) callsEach() float64     { return (s.work.scripts + s.work.sets) / s.grantsOrOne() }
func (s sample) nodeCPUEach() float64   { return 1000 * s.work.cpu / s.grantsOrOne() }
func (s sample) daemonCPUEach() float64 { return milliseconds(s.daemon) / s.grantsOrOne() }

func (f *fleetReport) addLoads(contender string, n int, bare []load, all []threeLoads) {
	f.Loads = append(f.Loads, loadRow{
		Contender: contender, Hosts: n,
		Bare:    medianLoad(bare, func(l load) load { return l }).CPU,
		Idle:    medianLoad(all, func(t threeLoads) load { return t.idle }),
		Held:    medianLoad(all, func(t threeLoads) load { return t.held }),
		Waiting: medianLoad(all, func(t threeLoads) load { return t.waiting }),
	})
}

func medianLoad[T any](all []T, of func(T) load) load {
	figure := func(figure func(load) float64) float64 {
		var values []float64
		for _, one := range all {
			values = append(values, figure(of(one)))
		}
		return median(values)
	}
	return load{
		Scripts:  figure(func(l load) float64 { return l.Scripts }),
		Commands: figure(func(l load) float64 { return l.Commands }),
		CPU:      figure(func(l load) float64 { return l.CPU }),
		Daemon:   figure(func(l load) float64 { return l.Daemon }),
	}
}

func (f *fleetReport) addHandOver(s *series) {
	f.HandOvers = append(f.HandOvers, handOverRow{
		Contender: s.contender, Hosts: s.workers, P50: s.medianOf(sample.handOverP50), P99: s.medianOf(sample.handOverP99),
		Trips: s.medianOf(sample.handOverP50) / f.Network.P50, Rate: s.medianOf(sample.rate),
	})
}

func (f *fleetReport) addFault(contender, fault string, all []afterFault) {
	one := faultRow{Contender: contender, Fault: fault, Times: len(all)}
	var delays []float64
	for _, got := range all {
		delays = append(delays, milliseconds(got.delay))
		if got.first {
			one.First++
		}
	}
	one.Median, one.Longest = median(delays), slices.Max(delays)
	f.Faults = append(f.Faults, one)
}

func (r *report) printFleet(w io.Writer) {
	f := r.Fleet
	if f == nil {
		return
	}
	fmt.Fprintf(w, "\n%s.\nOther processes kept %.2f CPUs busy meanwhile. Each host is a daemon of its own on this machine, with one client.\n", r.Machine, r.Others)
	if len(f.Rates) > 0 {
		fmt.Fprintf(w, "\nOne lock, one waiter on each host, %v of work. Calls and processor time of a node are for a grant, without what the same hosts cost while they are idle. Calls are those of scripts, of redsync also SET.\nDaemon ms is the processor time of all daemons for a grant. The longest wait is the longest time without a grant to one of the hosts; beside it are %.1f × hosts × mean cycle.\n\n", contendedHold, allowedWait)
		f.rateTable().print(w)
		for _, one := range f.Rates {
			if one.Failed > 0 {
				fmt.Fprintf(w, "\n%d hosts, %s: %d locks or unlocks failed, the first: %s\n", one.Hosts, one.Contender, one.Failed, one.Failure)
			}
		}
	}
	if len(f.Loads) > 0 {
		fmt.Fprintf(w, "\nA fleet that takes no lock: idle; one more host holds a lock; all others wait for it. Commands are those that a node got, without those that scripts call. The CPU of a node and of a daemon are shares of one processor.\n\n")
		f.loadTable().print(w)
	}
	if len(f.HandOvers) > 0 {
		fmt.Fprintf(w, "\nHand-overs between hosts over an emulated network: a round trip is %.2f ms at p50 and %.2f ms at p99, measured with nothing else on it.\n\n", f.Network.P50, f.Network.P99)
		f.handOverTable().print(w)
	}
	if len(f.Faults) > 0 {
		fmt.Fprintf(w, "\nThree hosts: one holds a lock, two wait. The first waiting host has a fault, then the lock is released: time from calling unlock to the next grant.\n\n")
		f.faultTable().print(w)
	}
	if one := f.Idle; one != nil {
		fmt.Fprintf(w, "\n%d idle hosts and one node: %s commands/s, %s %% of a processor (without hosts %s %%).\n", one.Hosts, number(one.Commands), number(100*one.CPU), number(100*one.Bare))
	}
	if len(f.Foreign) > 0 {
		fmt.Fprintf(w, "\nHosts with one waiter each, and one redsync client, all for one lock, %v of work.\n\n", contendedHold)
		f.foreignTable().print(w)
		for _, one := range f.Foreign {
			if one.Failed > 0 {
				fmt.Fprintf(w, "\n%s: %d locks or unlocks failed, the first: %s\n", one.Contender, one.Failed, one.Failure)
			}
		}
	}
}

func (f *fleetReport) rateTable() *table {
	t := &table{header: []string{"hosts", "contender", "grants/s", "× two hosts", "× redsync", "calls on a node", "node ms", "daemon ms", "least/most served", "longest wait ms", "allowed ms"}}
	for _, one := range f.Rates {
		t.add(fmt.Sprint(one.Hosts), one.Contender, number(one.Rate), number(one.ToTwo), number(one.ToRedsync), number(one.Calls), number(one.NodeCPU), number(one.DaemonCPU),
			fmt.Sprintf("%.2f", one.Fairness), number(one.Longest), number(allowedWait*one.Fair))
	}
	return t
}

func (f *fleetReport) loadTable() *table {
	t := &table{header: []string{"hosts", "contender", "script calls/s on a node", "commands/s on a node", "node CPU %", "daemon CPU %"}}
	add := func(hosts, contender string, l load) {
		t.add(hosts, contender, number(l.Scripts), number(l.Commands), number(100*l.CPU), number(100*l.Daemon))
	}
	for i, one := range f.Loads {
		if i == 0 {
			add("none", "", load{CPU: one.Bare})
		}
		add(fmt.Sprint(one.Hosts+1, " idle"), one.Contender, one.Idle)
		add(fmt.Sprint("1 holds, ", one.Hosts, " idle"), "", one.Held)
		add(fmt.Sprint("1 holds, ", one.Hosts, " wait"), "", one.Waiting)
	}
	return t
}

func (f *fleetReport) handOverTable() *table {
	t := &table{header: []string{"hosts", "contender", "hand-over p50 ms", "p99 ms", "p50 in round trips", "grants/s"}}
	for _, one := range f.HandOvers {
		t.add(fmt.Sprint(one.Hosts), one.Contender, number(one.P50), number(one.P99), number(one.Trips), number(one.Rate))
	}
	return t
}

func (f *fleetReport) faultTable() *table {
	t := &table{header: []string{"the first waiting host", "contender", "median ms", "longest ms", "times", "that host got it"}}
	for _, one := range f.Faults {
		t.add(one.Fault, one.Contender, number(one.Median), number(one.Longest), fmt.Sprint(one.Times), fmt.Sprint(one.First))
	}
	return t
}

// The targets of part fleet.
const (
	mostCalls    = 6    // on a node for each grant
	mostCalled   = 0.1  // by each waiting host and second, more than by an idle one, which makes one
	mostTrips    = 2.2  // of a hand-over
	mostDelayed  = 300  // ms, after a fault
	leastForeign = 0.5  // grants/s of a redsync client beside hosts that wait
	idleCost     = 0.08 // cores of a node, for manyIdle hosts
	daemonCost   = 0.002
)

func (r *report) fleetTargets() (all []target) {
	if r.Fleet == nil {
		return nil
	}
	for _, one := range r.Fleet.Rates {
		if one.Contender != fleetNow || one.Hosts < 2 {
			continue
		}
		what := fmt.Sprintf("%d hosts, one waiter each: ", one.Hosts)
		all = append(all, atMost(what+"script calls on a node for each grant", one.Calls, mostCalls, ""),
			atLeast(what+"least / most served", one.Fairness, 0.9, ""),
			atMost(what+"longest wait", one.Longest/one.Fair, allowedWait, " × hosts × mean cycle"))
		if least := map[int]float64{30: 0.6, 50: 0.5}[one.Hosts]; least > 0 && one.ToTwo > 0 {
			all = append(all, atLeast(what+"grants/s", one.ToTwo, least, " × two hosts"))
		}
	}
	for _, one := range r.Fleet.Loads {
		if one.Contender == fleetNow {
			all = append(all,
				atMost(fmt.Sprintf("%d hosts wait for a held lock: script calls on a node for each", one.Hosts), (one.Waiting.Scripts-one.Held.Scripts)/float64(one.Hosts), mostCalled, "/s more than idle"),
				atMost("an idle daemon: CPU", 100*one.Idle.Daemon, 100*daemonCost, " % of a core"))
		}
	}
	if one := r.Fleet.Idle; one != nil {
		all = append(all, atMost(fmt.Sprintf("%d idle hosts: CPU of a node", one.Hosts), 100*one.CPU, 100*idleCost, " % of a core"))
	}
	for _, one := range r.Fleet.HandOvers {
		if one.Contender == fleetNow {
			all = append(all, atMost(fmt.Sprintf("%d hosts: p50 of a hand-over", one.Hosts), one.Trips, mostTrips, " round trips"))
		}
	}
	for _, one := range r.Fleet.Foreign {
		if one.Contender == fleetNow {
			all = append(all, atLeast(fmt.Sprintf("%d hosts and a redsync client: grants/s of redsync", one.Hosts), one.Redsync, leastForeign, ""))
		}
	}
	for _, one := range r.Fleet.Faults {
		if one.Contender == fleetNow {
			all = append(all, atMost("the first waiting host "+one.Fault+": the next grant after", one.Longest, mostDelayed, " ms"))
		}
	}
	return all
}
