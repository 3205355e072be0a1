package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// report has all measurements.
type report struct {
	Started time.Time `json:"started"`
	Machine string    `json:"machine"`
	Others  float64   `json:"others_cores"` // cores that other processes kept busy meanwhile
	Rows    []row     `json:"rows"`
	Memory  *memory   `json:"memory,omitempty"`
	Held    []heldRow `json:"held,omitempty"`

	Contention []contentionRow `json:"contention,omitempty"`
	Hosts      *hostsRow       `json:"hosts,omitempty"`
	Readers    *readersRow     `json:"readers,omitempty"`

	Network     *networkFigures `json:"network,omitempty"`
	NetworkRows []networkRow    `json:"network_rows,omitempty"`

	Fleet *fleetReport `json:"fleet,omitempty"`
	Cost  []costRow    `json:"cost,omitempty"`

	Alternatives *alternativesReport `json:"alternatives,omitempty"`

	Targets []target `json:"targets"`
}

// row is one line of the table: a contender in a scenario.
type row struct {
	Scenario  string  `json:"scenario"`
	Part      string  `json:"part"`
	Hung      bool    `json:"hung"` // one node was hung
	Contender string  `json:"contender"`
	Rounds    int     `json:"rounds"`
	Rate      float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"` // 0 if it cannot be measured
	P99       float64 `json:"p99_ms"`
	ClientCPU float64 `json:"client_cpu_s"` // for 10,000 operations, including the daemon's
	DaemonCPU float64 `json:"daemon_cpu_s"` // part of that
	RedisCPU  float64 `json:"redis_cpu_s"`
	Commands  float64 `json:"commands"` // for one operation, on all nodes together
	Reads     float64 `json:"reads"`
	Left      float64 `json:"keys_left"` // keys left on the nodes, for 10,000 operations

	// Relative to the baseline; 0 if there is none.
	RateRatio float64 `json:"rate_ratio"`
	P50Ratio  float64 `json:"p50_ratio"`
	CPURatio  float64 `json:"cpu_ratio"` // of clients and Redis together

	// Relative to the binary of -before; 0 if it was not measured.
	BeforeRateRatio float64 `json:"before_rate_ratio"`
	BeforeP50Ratio  float64 `json:"before_p50_ratio"`

	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"` // the first failure
	Clashes int    `json:"clashes"`           // number of times that a lock was held twice
}

// heldRow has more results of held leases.
type heldRow struct {
	Contender string  `json:"contender"`
	Hung      bool    `json:"hung"`
	Leases    int     `json:"leases"`
	Seconds   float64 `json:"seconds"`
	Lost      int     `json:"lost"`
	Loss      string  `json:"loss,omitempty"` // an example
	Bare      int     `json:"bare"`           // leases on no more than a quorum of the nodes that answer
	Cores     float64 `json:"client_cores"`   // cores that all leases would keep busy, scaled up from a share
	Redis     float64 `json:"redis_cores"`
	Daemon    float64 `json:"daemon_cores"`
	PerLease  int64   `json:"bytes_per_lease"`
}

func newReport(o options) *report {
	return &report{
		Started: time.Now(),
		Machine: fmt.Sprintf("%d CPUs, %s, %s/%s; %d redis-servers on the same machine; %d rounds of %v",
			runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, nodeCount, o.rounds, o.slice),
	}
}

// perTenThousand scales the cost of n operations to 10,000 of them.
func perTenThousand(cost float64, n int) float64 { return cost / float64(max(n, 1)) * 10_000 }

// addPairs makes rows from one scenario's series.
func (r *report) addPairs(all []*series) {
	for _, s := range all {
		one := pairRow(s, baselineOf(all, s.hung))
		if before := earlier(all, s); before != nil {
			one.BeforeRateRatio, one.BeforeP50Ratio = s.ratioTo(before, sample.rate), s.ratioTo(before, sample.p50)
		}
		r.Rows = append(r.Rows, one)
	}
}

// earlier returns the series of the binary of -before for the same contender, or nil.
func earlier(all []*series, s *series) *series {
	for _, one := range all {
		if one.contender == beforeOf[s.contender] && one.hung == s.hung {
			return one
		}
	}
	return nil
}

func baselineOf(all []*series, hung bool) *series {
	for _, s := range all {
		if s.contender == baseline && s.hung == hung {
			return s
		}
	}
	return &series{}
}

// pairRow takes medians over the rounds, and sums of the costs.
func pairRow(s, base *series) row {
	r := row{Scenario: s.title, Part: s.part, Hung: s.hung, Contender: s.contender, Rounds: len(s.rounds)}
	r.Rate, r.P50, r.P99 = s.medianOf(sample.rate), s.medianOf(sample.p50), s.medianOf(sample.p99)
	r.RateRatio, r.P50Ratio = s.ratioTo(base, sample.rate), s.ratioTo(base, sample.p50)
	sum := s.total()
	r.cost(len(sum.latencies), sum.usage, sum.counters)
	r.Left = perTenThousand(float64(sum.left), len(sum.latencies))
	if theirs := base.total(); len(theirs.latencies) > 0 {
		var b row
		b.cost(len(theirs.latencies), theirs.usage, theirs.counters)
		r.CPURatio = (r.ClientCPU + r.RedisCPU) / (b.ClientCPU + b.RedisCPU)
	}
	r.Failed, r.Clashes = sum.failed, sum.clashes
	if sum.failure != nil {
		r.Failure = sum.failure.Error()
	}
	return r
}

func (r *row) cost(n int, u usage, c counters) {
	r.ClientCPU = perTenThousand((u.bench + u.daemon).Seconds(), n)
	r.DaemonCPU = perTenThousand(u.daemon.Seconds(), n)
	r.RedisCPU = perTenThousand(u.redis.Seconds(), n)
	r.Commands = float64(c.commands) / float64(max(n, 1))
	r.Reads = float64(c.reads) / float64(max(n, 1))
}

func (s sample) rate() float64 { return float64(len(s.latencies)) / s.elapsed.Seconds() }
func (s sample) p50() float64  { return milliseconds(quantile(s.latencies, 0.50)) }
func (s sample) p99() float64  { return milliseconds(quantile(s.latencies, 0.99)) }

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func (s *series) medianOf(figure func(sample) float64) float64 {
	var values []float64
	for _, got := range s.rounds {
		values = append(values, figure(got))
	}
	return median(values)
}

// ratioTo compares round by round, so that a disturbance of a whole round does not matter. It
// returns the median of the ratios, or 0 if there is nothing to compare.
func (s *series) ratioTo(base *series, figure func(sample) float64) float64 {
	var values []float64
	for round, got := range s.rounds {
		if theirs, ok := base.rounds[round]; ok && figure(theirs) > 0 {
			values = append(values, figure(got)/figure(theirs))
		}
	}
	return median(values)
}

// total adds up the rounds; its latencies are not sorted.
func (s *series) total() sample {
	var sum sample
	for _, got := range s.rounds {
		sum.latencies = append(sum.latencies, got.latencies...)
		sum.usage = sum.usage.plus(got.usage)
		sum.commands += got.commands
		sum.reads += got.reads
		sum.left += got.left
		sum.failed += got.failed
		sum.clashes += got.clashes
		if sum.failure == nil {
			sum.failure = got.failure
		}
	}
	return sum
}

// addHeld makes rows from the measurements of held leases.
func (r *report) addHeld(samples []heldSample) {
	slices.SortStableFunc(samples, func(a, b heldSample) int { return order(a.hung) - order(b.hung) })
	base := map[bool]row{}
	most := 0
	for _, s := range samples {
		one := s.row()
		if s.contender == baseline {
			base[s.hung] = one
		}
		if b := base[s.hung]; b.ClientCPU > 0 {
			one.CPURatio = (one.ClientCPU + one.RedisCPU) / (b.ClientCPU + b.RedisCPU)
		}
		r.Rows = append(r.Rows, one)
		most = max(most, s.leases)
	}
	for _, s := range samples {
		r.Held = append(r.Held, s.heldRow(most))
	}
}

// order sorts measurements without a hung node first.
func order(hung bool) int {
	if hung {
		return 1
	}
	return 0
}

// row returns the line of an extension in the table of pairs. The benchmark cannot see the daemon's
// extensions, so it divides the cost by the number that is due.
func (s heldSample) row() row {
	r := row{Scenario: "held leases, an extension", Part: "held", Hung: s.hung, Contender: s.contender, Rounds: 1}
	r.Rate = float64(len(s.latencies)) / s.lasted.Seconds()
	r.P50, r.P99 = milliseconds(quantile(s.latencies, 0.50)), milliseconds(quantile(s.latencies, 0.99))
	r.cost(s.due, s.usage, s.counters)
	r.Failed = s.failed
	if s.failure != nil {
		r.Failure = s.failure.Error()
	}
	return r
}

// heldRow scales the CPU time of a share of the leases up to all of them.
func (s heldSample) heldRow(all int) heldRow {
	cores := func(d time.Duration) float64 {
		return d.Seconds() / s.lasted.Seconds() * float64(all) / float64(s.leases)
	}
	h := heldRow{
		Contender: s.contender, Hung: s.hung, Leases: s.leases, Seconds: s.lasted.Seconds(), Lost: s.lost, Bare: s.bare,
		Cores: cores(s.bench + s.daemon), Daemon: cores(s.daemon), Redis: cores(s.redis), PerLease: s.perLease,
	}
	if s.loss != nil {
		h.Loss = s.loss.Error()
	}
	return h
}

// fault returns an error if a lock was held twice: then no figure is valid.
func (r *report) fault() error {
	var faults []error
	fault := func(contender, scenario string, clashes int) {
		if clashes > 0 {
			faults = append(faults, fmt.Errorf("%s, %s: a lock was held twice, %d times", contender, scenario, clashes))
		}
	}
	for _, row := range r.Rows {
		fault(row.Contender, row.Scenario, row.Clashes)
	}
	for _, row := range r.Contention {
		fault(row.Contender, row.Scenario, row.Clashes)
	}
	for _, row := range r.NetworkRows {
		fault(row.Contender, row.Scenario, row.Clashes)
	}
	if r.Fleet != nil {
		for _, row := range r.Fleet.Rates {
			fault(row.Contender, fmt.Sprintf("%d hosts", row.Hosts), row.Clashes)
		}
		for _, row := range r.Fleet.Foreign {
			fault(row.Contender, fmt.Sprintf("%d hosts and a redsync client", row.Hosts), row.Clashes)
		}
	}
	if r.Hosts != nil {
		fault(allHosts, "one dies", r.Hosts.Clashes)
	}
	if r.Readers != nil {
		fault("redlockd", "readers and writers", r.Readers.Clashes)
	}
	if r.Alternatives != nil {
		r.Alternatives.faults(fault)
	}
	return errors.Join(faults...)
}

func (r *report) writeJSON(path string) error {
	r.Targets = targetsOf(r)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
