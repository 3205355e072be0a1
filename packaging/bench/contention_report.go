package main

import (
	"fmt"
	"slices"
	"time"
)

// contentionRow is what became of workers who waited for one name.
type contentionRow struct {
	Scenario  string  `json:"scenario"`
	Part      string  `json:"part"`
	Contender string  `json:"contender"`
	Rounds    int     `json:"rounds"`
	Rate      float64 `json:"per_second"`       // acquisitions
	P50       float64 `json:"hand_over_p50_ms"` // from the unlock of one to the grant of the next
	P99       float64 `json:"hand_over_p99_ms"`
	Alone     float64 `json:"alone_p50_ms"` // a lock without contention; 0: not measured
	Hold      float64 `json:"hold_ms"`      // p50 of how long it really was
	Commands  float64 `json:"commands"`     // to each node for an acquisition, without those inside of scripts; 0: not counted
	Least     float64 `json:"least_served"` // worker, in a slice
	Most      float64 `json:"most_served"`
	Fairness  float64 `json:"fairness"` // least / most
	Apart     float64 `json:"apart"`    // most − least
	CPU       float64 `json:"cpu_s"`    // of everything, for 10,000 acquisitions

	// Against the first row of the scenario.
	RateRatio     float64 `json:"rate_ratio"`
	HandOverRatio float64 `json:"hand_over_ratio"`
	AloneRatio    float64 `json:"hand_over_to_alone"`

	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"` // the first of them
	Clashes int    `json:"clashes"`           // a lock held twice
}

// hostsRow is what else there is to say about several hosts.
type hostsRow struct {
	Fairness float64 `json:"fairness"` // between hosts: least / most
	// Counted by the daemons, for 1,000 acquisitions; 0 where they do not count it.
	Splits    float64 `json:"splits"`
	HandOvers float64 `json:"hand_overs"`
	WakeUps   float64 `json:"wake_ups"`

	Deaths  int     `json:"deaths"`
	TTL     float64 `json:"ttl_ms"`
	Delay   float64 `json:"delay_ms"` // of the others, the longest, from the kill on
	Gap     float64 `json:"gap_ms"`   // between two of their grants, the longest
	After   int     `json:"after"`    // grants to them after the kill, the fewest
	Failed  int     `json:"failed"`
	Failure string  `json:"failure,omitempty"`
	Clashes int     `json:"clashes"`
}

// readersRow is what readers and writers of one name did.
type readersRow struct {
	Skipped  string  `json:"skipped,omitempty"` // why there is nothing else
	Together int     `json:"together"`          // held at once
	Gathered float64 `json:"gathered_ms"`       // until all of them did
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
		r.Contention = append(r.Contention, one)
	}
}

// contendedRow takes medians over the rounds, and costs over all of them.
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
		Fairness: b.all.medianOf(sample.hostFairness),
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

// addForeign makes a row for each of the two; both have the hand-overs of all, and
// whose the costs are cannot be told.
func (r *report) addForeign(m mixture, s *series) {
	for i, e := range m {
		one := contendedRow(s.only(e.name, func(w int) bool { return w%2 == i }), s)
		one.RateRatio, one.HandOverRatio, one.CPU = 0, 0, 0
		if i > 0 {
			one.Failed, one.Failure, one.Clashes = 0, "", 0 // whose they are cannot be told: the first row has them
		}
		r.Contention = append(r.Contention, one)
	}
}

// only is the series with no other workers than those that want is true for, as
// far as it is known of each worker: not the costs, faults and hand-overs.
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
		got.latencies = make([]time.Duration, pairs) // only their number counts
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

// hostFairness is the fairness between hosts whose workers are numbered in turn.
func (s sample) hostFairness() float64 {
	grants := make([]int, hostCount)
	for w, n := range s.served {
		grants[w%hostCount] += n
	}
	return share(grants)
}

// share is the least of the counts as a part of the largest; 0 where all are 0.
func share(counts []int) float64 {
	return float64(slices.Min(counts)) / float64(max(1, slices.Max(counts)))
}

// ratio is that of one figure to another of a second series, round by round; see
// ratioTo.
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
