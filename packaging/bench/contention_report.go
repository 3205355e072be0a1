package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// contentionRow has the results of workers that waited for one name.
type contentionRow struct {
	Scenario  string  `json:"scenario"`
	Part      string  `json:"part"`
	Contender string  `json:"contender"`
	Rounds    int     `json:"rounds"`
	Rate      float64 `json:"per_second"`       // acquisitions
	P50       float64 `json:"hand_over_p50_ms"` // from one worker's unlock to the next grant
	P99       float64 `json:"hand_over_p99_ms"`
	Alone     float64 `json:"alone_p50_ms"` // a lock without contention; 0: not measured
	Hold      float64 `json:"hold_ms"`      // p50 of the real hold time
	Commands  float64 `json:"commands"`     // to each node for an acquisition, without commands called by scripts; 0: not counted
	Least     float64 `json:"least_served"` // grants to the worker with the fewest, in a slice
	Most      float64 `json:"most_served"`
	Fairness  float64 `json:"fairness"` // least / most
	Apart     float64 `json:"apart"`    // most − least
	CPU       float64 `json:"cpu_s"`    // of all processes, for 10,000 acquisitions

	// Relative to the first row of the scenario.
	RateRatio     float64 `json:"rate_ratio"`
	HandOverRatio float64 `json:"hand_over_ratio"`
	AloneRatio    float64 `json:"hand_over_to_alone"`

	// Relative to the binary of -before; 0 if it was not measured.
	BeforeRateRatio float64 `json:"before_rate_ratio,omitempty"`

	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"` // the first failure
	Clashes int    `json:"clashes"`           // number of times that a lock was held twice
}

// hostsRow has more results of several hosts.
type hostsRow struct {
	Fairness float64 `json:"fairness"` // between hosts: fewest / most grants
	// Counted by the daemons, for 1,000 acquisitions; 0 if they do not count it.
	Splits    float64 `json:"splits"`
	HandOvers float64 `json:"hand_overs"`
	WakeUps   float64 `json:"wake_ups"`

	Deaths  int     `json:"deaths"`
	TTL     float64 `json:"ttl_ms"`
	Delay   float64 `json:"delay_ms"` // of the other hosts after the kill, the longest
	Gap     float64 `json:"gap_ms"`   // between two of their grants, the longest
	After   int     `json:"after"`    // their grants after the kill, the smallest number
	Failed  int     `json:"failed"`
	Failure string  `json:"failure,omitempty"`
	Clashes int     `json:"clashes"`
}

// readersRow has the results of readers and writers of one name.
type readersRow struct {
	Skipped  string  `json:"skipped,omitempty"` // why it was not measured
	Together int     `json:"together"`          // readers that held the lock at once
	Gathered float64 `json:"gathered_ms"`       // time until all readers held it
	Hold     float64 `json:"hold_ms"`
	Writers  int     `json:"writers"`
	P50      float64 `json:"writer_p50_ms"`
	Max      float64 `json:"writer_max_ms"`
	Reads    float64 `json:"reads_per_second"`
	Clashes  int     `json:"clashes"`
}

func (r *report) addContention(all []*contention) {
	i := slices.IndexFunc(all, func(c *contention) bool { return c.name == baseline })
	for _, c := range all {
		one := contendedRow(c.among, all[i].among)
		one.Commands = c.commands
		one.Alone = c.alone.medianOf(sample.lockP50)
		one.AloneRatio = c.among.ratio(c.alone, sample.handOverP50, sample.lockP50)
		if before := slices.IndexFunc(all, func(other *contention) bool { return other.name == beforeOf[c.name] }); before >= 0 {
			one.BeforeRateRatio = c.among.ratioTo(all[before].among, sample.rate)
		}
		r.Contention = append(r.Contention, one)
	}
}

// contendedRow takes medians over the rounds, and sums of the costs.
func contendedRow(s, base *series) contentionRow {
	sum := s.total()
	one := contentionRow{
		Scenario: s.title, Part: s.part, Contender: s.contender, Rounds: len(s.rounds),
		Rate: s.medianOf(sample.rate), P50: s.medianOf(sample.handOverP50), P99: s.medianOf(sample.handOverP99), Hold: s.medianOf(sample.holdP50),
		Least: s.medianOf(sample.least), Most: s.medianOf(sample.most), Fairness: s.medianOf(sample.fairness), Apart: s.medianOf(sample.apart),
		CPU:       perTenThousand((sum.bench + sum.daemon + sum.redis).Seconds(), len(sum.latencies)),
		RateRatio: s.ratioTo(base, sample.rate), HandOverRatio: s.ratioTo(base, sample.handOverP50),
		Failed: sum.failed, Clashes: sum.clashes,
	}
	if sum.failure != nil {
		one.Failure = sum.failure.Error()
	}
	return one
}

func (r *report) addHosts(b *hostsBench) {
	r.Contention = append(r.Contention, contendedRow(b.one, b.one), contendedRow(b.all, b.one))
	grants := len(b.all.total().latencies)
	each := func(count int64) float64 { return float64(count) / float64(max(1, grants)) * 1000 }
	h := &hostsRow{
		Fairness: b.all.medianOf(func(got sample) float64 { return got.hostFairness(hostCount) }),
		Splits:   each(b.counts.splits), HandOvers: each(b.counts.handOvers), WakeUps: each(b.counts.wakeUps),
	}
	for _, d := range b.deaths {
		h.add(d)
	}
	r.Hosts = h
}

func (h *hostsRow) add(d death) {
	h.Deaths++
	h.TTL = milliseconds(d.ttl)
	h.Delay = max(h.Delay, milliseconds(d.delay))
	h.Gap = max(h.Gap, milliseconds(d.gap))
	if h.Deaths == 1 || d.after < h.After {
		h.After = d.after
	}
	h.Failed += d.failed
	h.Clashes += d.clashes
	if d.failure != nil && h.Failure == "" {
		h.Failure = d.failure.Error()
	}
}

func (r *report) addReaders(all []readersSample) {
	one := &readersRow{Hold: milliseconds(readersHold), Together: workersAtOnce}
	r.Readers = one
	var waits []time.Duration
	var elapsed time.Duration
	reads := 0
	for _, s := range all {
		if s.skipped != "" {
			*one = readersRow{Skipped: s.skipped}
			return
		}
		one.Together = min(one.Together, s.together)
		one.Gathered = max(one.Gathered, milliseconds(s.gathered))
		one.Clashes += s.clashes
		waits = append(waits, s.waits...)
		reads, elapsed = reads+s.reads, elapsed+s.elapsed
	}
	slices.Sort(waits)
	one.Writers = len(waits)
	one.P50, one.Max = milliseconds(quantile(waits, 0.5)), milliseconds(quantile(waits, 1))
	one.Reads = float64(reads) / elapsed.Seconds()
}

// addForeign makes a row for each of the two contenders. Both rows have the hand-overs of all
// workers. The costs cannot be attributed to one of them.
func (r *report) addForeign(m mixture, s *series) {
	for i, e := range m {
		one := contendedRow(s.only(e.name, func(w int) bool { return w%2 == i }), s)
		one.RateRatio, one.HandOverRatio, one.CPU = 0, 0, 0
		if i > 0 {
			one.Failed, one.Failure, one.Clashes = 0, "", 0 // these cannot be attributed, so only the first row has them
		}
		r.Contention = append(r.Contention, one)
	}
}

// only returns the series of the workers for which want is true. The costs, faults and hand-overs
// are those of all workers.
func (s *series) only(contender string, want func(w int) bool) *series {
	part := newSeries(s.scenario, contender)
	for round, got := range s.rounds {
		served := got.served
		got.served = nil
		pairs := 0
		for w, n := range served {
			if want(w) {
				got.served = append(got.served, n)
				pairs += n
			}
		}
		got.latencies = make([]time.Duration, pairs) // only their number matters
		part.rounds[round] = got
	}
	return part
}

func (s sample) handOverP50() float64 { return milliseconds(quantile(s.handOvers, 0.50)) }
func (s sample) handOverP99() float64 { return milliseconds(quantile(s.handOvers, 0.99)) }
func (s sample) lockP50() float64     { return milliseconds(quantile(s.locks, 0.50)) }
func (s sample) holdP50() float64     { return milliseconds(quantile(s.holds, 0.50)) }

func (s sample) least() float64    { return float64(slices.Min(s.served)) }
func (s sample) most() float64     { return float64(slices.Max(s.served)) }
func (s sample) apart() float64    { return s.most() - s.least() }
func (s sample) fairness() float64 { return share(s.served) }

// hostFairness returns the fairness between hosts. Workers are assigned to hosts in turn.
func (s sample) hostFairness(hosts int) float64 {
	grants := make([]int, hosts)
	for w, n := range s.served {
		grants[w%hosts] += n
	}
	return share(grants)
}

// share returns the smallest count divided by the largest, or 0 if all are 0.
func share(counts []int) float64 {
	return float64(slices.Min(counts)) / float64(max(1, slices.Max(counts)))
}

// ratio compares a figure with another figure of a second series, round by round; see ratioTo.
func (s *series) ratio(base *series, figure, theirs func(sample) float64) float64 {
	var values []float64
	for round, got := range s.rounds {
		if other, ok := base.rounds[round]; ok && theirs(other) > 0 {
			values = append(values, figure(got)/theirs(other))
		}
	}
	return median(values)
}

func (r contentionRow) where() string { return fmt.Sprintf("%s, %s", r.Scenario, r.Contender) }

// printContention writes the tables about waiters for one name.
func (r *report) printContention(w io.Writer) {
	if len(r.Contention) > 0 {
		fmt.Fprintf(w, "\n%s.\nOther processes kept %.2f CPUs busy meanwhile. Workers sleep by timerfd, which is precise: hold is what it came to.\n", r.Machine, r.Others)
		fmt.Fprint(w, "A hand-over is from calling unlock to the grant of the next who had waited, on this program's monotonic clock; alone is a lock that nobody else wants. The daemon runs at nice -10, as its unit has it.\n",
			"Commands are those that a node was sent for an acquisition (counted by MONITOR in a slice of its own; not those inside of scripts). Ratios are against the first row of each scenario.\n\n")
		r.contentionTable().print(w)
		r.printContentionFailures(w)
	}
	if r.Hosts != nil {
		r.printHosts(w, r.Hosts)
	}
	if r.Readers != nil {
		printReaders(w, r.Readers)
	}
}

func (r *report) contentionTable() *table {
	t := &table{header: []string{"scenario", "contender", "locks/s", "hand-over p50 ms", "p99 ms", "alone p50 ms", "hold ms", "cmds a node",
		"least served", "most", "least/most", "CPU s/10,000", "locks/s ×", "hand-over ×", "hand-over/alone"}}
	previous := ""
	for _, one := range r.Contention {
		shown := one.Scenario
		if shown == previous {
			shown = ""
		}
		previous = one.Scenario
		t.add(shown, one.Contender, number(one.Rate), number(one.P50), number(one.P99), number(one.Alone), number(one.Hold), number(one.Commands),
			fmt.Sprintf("%.0f", one.Least), fmt.Sprintf("%.0f", one.Most), fmt.Sprintf("%.2f", one.Fairness), number(one.CPU),
			number(one.RateRatio), number(one.HandOverRatio), number(one.AloneRatio))
	}
	return t
}

func (r *report) printContentionFailures(w io.Writer) {
	for _, one := range r.Contention {
		if one.Failed > 0 {
			fmt.Fprintf(w, "\n%s: %d locks or unlocks failed, the first: %s\n", one.where(), one.Failed, one.Failure)
		}
	}
}

func (r *report) printHosts(w io.Writer, h *hostsRow) {
	fmt.Fprintf(w, "\n%d hosts: fairness between them %.2f (least / most). For 1,000 acquisitions their daemons counted %.1f split votes, %.0f hand-overs, %.0f wake-ups (0 where this version counts none).\n",
		hostCount, h.Fairness, h.Splits, h.HandOvers, h.WakeUps)
	if h.Deaths > 0 {
		fmt.Fprintf(w, "%d times the daemon of one was killed (kill -9) while it held, ttl %.0f ms: the others waited %.0f ms at most; the longest time without a grant to them was %.0f ms; then they had %d grants or more.\n",
			h.Deaths, h.TTL, h.Delay, h.Gap, h.After)
	}
	if h.Failed > 0 {
		fmt.Fprintf(w, "%d locks or unlocks of the others failed meanwhile, the first: %s\n", h.Failed, h.Failure)
	}
}

func printReaders(w io.Writer, one *readersRow) {
	if one.Skipped != "" {
		fmt.Fprintf(w, "\nReaders: skipped, this daemon has none: it answered %s\n", one.Skipped)
		return
	}
	fmt.Fprintf(w, "\nReaders, on two hosts: %d of %d held one name together, %.1f ms after the first asked. Then they came and went, %.0f grants/s, each held it for %.0f ms at most,\nand %d writers wanted it meanwhile: they waited %.1f ms at p50, %.1f ms at most.\n",
		one.Together, workersAtOnce, one.Gathered, one.Reads, one.Hold, one.Writers, one.P50, one.Max)
}

// findContention returns the row of a contender in a part.
func (r *report) findContention(part, contender string) (contentionRow, bool) {
	for _, one := range r.Contention {
		if one.Part == part && one.Contender == contender {
			return one, true
		}
	}
	return contentionRow{}, false
}

func atLeast(what string, got, want float64, unit string) target {
	return target{What: what, Want: fmt.Sprintf("≥ %v%s", want, unit), Got: fmt.Sprintf("%.2f%s", got, unit), Pass: got >= want}
}

func atMost(what string, got, want float64, unit string) target {
	return target{What: what, Want: fmt.Sprintf("≤ %v%s", want, unit), Got: fmt.Sprintf("%.2f%s", got, unit), Pass: got <= want}
}

// contendedTargets evaluates redlockd on one host, with both kinds of connections.
func (r *report) contendedTargets() []target {
	var all []target
	for _, contender := range []string{redlockdConns, redlockdTags} {
		one, ok := r.findContention(contended.part, contender)
		if !ok {
			continue
		}
		what := fmt.Sprintf("%d waiters, %s: ", workersAtOnce, contender)
		all = append(all,
			atMost(what+"p50 of a hand-over", one.HandOverRatio, 0.4, " × "+baseline),
			atMost(what+"p50 of a hand-over", one.AloneRatio, 1.5, " × one lock alone"),
			atLeast(what+"acquisitions/s", one.RateRatio, 1.7, " × "+baseline),
			atMost(what+"commands a node for each acquisition", one.Commands, 1.2, ""),
			fair(what+"least served / most served", one))
		if one.BeforeRateRatio > 0 {
			all = append(all, atLeast(what+"acquisitions/s", one.BeforeRateRatio, 0.97, " × before"))
		}
	}
	return all
}

// fair evaluates the fairness between workers. A slice may end within a round of all workers, so a
// difference of one grant is as fair as possible.
func fair(what string, one contentionRow) target {
	t := atLeast(what, one.Fairness, 0.95, " (or one apart)")
	t.Got = fmt.Sprintf("%.2f (%.0f/%.0f)", one.Fairness, one.Least, one.Most)
	t.Pass = t.Pass || one.Least > 0 && one.Apart <= 1
	return t
}

// wakeUpAllowance is the allowed delay relative to one ttl: a node may report an expired key late,
// and then a ballot follows.
const wakeUpAllowance = 1.05

func (r *report) hostsTargets() []target {
	h := r.Hosts
	if h == nil {
		return nil
	}
	what := fmt.Sprintf("%d hosts, %d waiters each: ", hostCount, hostWorkers)
	one, _ := r.findContention(severalHosts.part, allHosts)
	all := []target{
		atLeast(what+"acquisitions/s", one.RateRatio, 0.5, " × one host with all of them"),
		atLeast(what+"fairness between hosts, least / most", h.Fairness, 0.5, ""),
	}
	if h.Deaths > 0 {
		delayed := atMost(what+"one is killed, delay of the others", h.Delay/h.TTL, wakeUpAllowance, " × ttl")
		delayed.Want = "≤ 1 × ttl (and 5 % to notice it)"
		delayed.Pass = delayed.Pass && h.After > 0
		all = append(all, delayed)
	}
	return all
}

// writerAllowance is the allowed wait of a writer beyond one hold time, in milliseconds. It covers
// the round trips of its attempts and of the readers' unlocks, all at once, on a machine that runs
// everything.
const writerAllowance = 10

func (r *report) readersTargets() []target {
	one := r.Readers
	if one == nil || one.Skipped != "" {
		return nil
	}
	return []target{
		{What: "readers that hold one name together", Want: fmt.Sprint(workersAtOnce), Got: fmt.Sprint(one.Together), Pass: one.Together == workersAtOnce},
		{
			What: "a writer among readers waits, at most",
			Want: fmt.Sprintf("≤ one hold, %.0f ms, and %d ms of round trips", one.Hold, writerAllowance),
			Got:  fmt.Sprintf("%.1f ms", one.Max),
			Pass: one.Writers > 0 && one.Max <= one.Hold+writerAllowance,
		},
	}
}

// foreignTargets checks that redsync and redlockd excluded each other.
func (r *report) foreignTargets() []target {
	theirs, ok := r.findContention(foreign.part, redsyncGoRedis)
	ours, ok2 := r.findContention(foreign.part, redlockdConns)
	if !ok || !ok2 {
		return nil
	}
	clashes := theirs.Clashes + ours.Clashes
	return []target{{
		What: "redsync and redlockd on one key: two holders at once",
		Want: "never, and grants to both",
		Got:  fmt.Sprintf("%d times; %s and %s grants/s", clashes, number(theirs.Rate), number(ours.Rate)),
		Pass: clashes == 0 && theirs.Rate > 0 && ours.Rate > 0,
	}}
}
