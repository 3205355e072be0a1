package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// alternativesReport has the results of part alternatives, by the names of alternatives.
type alternativesReport struct {
	Machine string                     `json:"machine"`
	Skipped map[string]string          `json:"skipped,omitempty"` // why it was not measured
	Idle    map[string]idleUse         `json:"idle"`
	Readers map[string][]readersRow    `json:"readers,omitempty"`
	Ends    map[string]map[string][]ms `json:"ends,omitempty"` // by what ended
	Servers map[string]serverEnd       `json:"servers,omitempty"`
	Network *networkFigures            `json:"network,omitempty"`
	Rows    []alternativesRow          `json:"rows"`

	series map[string]*series // see seriesKey
}

// idleUse is how many processors are busy while the clients do nothing.
type idleUse struct {
	Servers float64 `json:"servers_cores"` // all of them together
	Daemons float64 `json:"daemons_cores"`
}

// ms is a time in milliseconds.
type ms float64

// alternativesRow is one line of the table. A cell is empty if there is no figure.
type alternativesRow struct {
	Title string   `json:"title"`
	Cells []string `json:"cells"` // in the order of measured
}

func newAlternativesReport(o options) *alternativesReport {
	return &alternativesReport{
		Machine: fmt.Sprintf("%d rounds of %v, %d processors, %s, %s", o.rounds, o.slice, runtime.NumCPU(), runtime.GOOS, runtime.Version()),
		Skipped: map[string]string{}, Idle: map[string]idleUse{}, Readers: map[string][]readersRow{}, Ends: map[string]map[string][]ms{},
		Servers: map[string]serverEnd{}, series: map[string]*series{},
	}
}

// measured returns the names of the alternatives that were not skipped.
func (a *alternativesReport) measured() (names []string) {
	for _, one := range alternatives {
		if a.Skipped[one.name] == "" {
			names = append(names, one.name)
		}
	}
	return names
}

func (a *alternativesReport) add(s scenario, name string, round int, got sample) {
	key := seriesKey(s.title, name)
	if a.series[key] == nil {
		a.series[key] = newSeries(s, name)
	}
	a.series[key].rounds[round] = got
}

func (a *alternativesReport) addReaders(name string, got readersSample) {
	one := readersRow{Together: got.together, Reads: float64(got.reads) / got.elapsed.Seconds(), Writers: len(got.waits), Clashes: got.clashes}
	one.P50, one.Max = milliseconds(quantile(got.waits, 0.5)), milliseconds(quantile(got.waits, 1))
	a.Readers[name] = append(a.Readers[name], one)
}

func (a *alternativesReport) addEnd(name, end string, took time.Duration) {
	if a.Ends[name] == nil {
		a.Ends[name] = map[string][]ms{}
	}
	a.Ends[name][end] = append(a.Ends[name][end], ms(milliseconds(took)))
}

func (a *alternativesReport) addServerEnd(name string, got sample) {
	a.Servers[name] = serverEnd{
		Pause: milliseconds(got.longestPause(serverSlice/3, serverSlice)), Failed: got.failed, Clashes: got.clashes,
	}
}

// faults calls fault for each row with clashes.
func (a *alternativesReport) faults(fault func(contender, scenario string, clashes int)) {
	for _, s := range a.series {
		fault(s.contender, s.title, s.total().clashes)
	}
	for name, all := range a.Readers {
		for _, one := range all {
			fault(name, "readers and writers", one.Clashes)
		}
	}
	for name, one := range a.Servers {
		fault(name, "a server ends", one.Clashes)
	}
}

// figure is one figure of a sample, and how it is written.
type figure struct {
	of   func(sample) float64
	text func(float64) string
}

func (s sample) lockP99() float64     { return milliseconds(quantile(s.locks, 0.99)) }
func (s sample) serversEach() float64 { return milliseconds(s.redis) / s.grantsOrOne() }
func (s sample) longestWait() float64 {
	return milliseconds(s.longestHostWait(len(s.served), s.elapsed))
}

func twoDigits(v float64) string { return fmt.Sprintf("%.2f", v) }

// grouped writes a whole number with a comma before each three digits from the end.
func grouped(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func medianOfMs(all []ms) float64 {
	var values []float64
	for _, v := range all {
		values = append(values, float64(v))
	}
	return median(values)
}

// duration writes milliseconds with a unit.
func duration(v float64) string {
	switch {
	case v <= 0:
		return ""
	case v >= 10_000:
		return fmt.Sprintf("%.1f s", v/1000)
	case v >= 1000:
		return fmt.Sprintf("%.2f s", v/1000)
	}
	return number(v) + " ms"
}

// finish makes the rows.
func (a *alternativesReport) finish() {
	a.Rows = nil
	perSecond, p50, handOver := figure{sample.rate, grouped}, figure{sample.p50, duration}, figure{sample.handOverP50, duration}
	a.row("one worker: pairs/s", alternativeOne, perSecond)
	a.row("the same: p50 of a pair", alternativeOne, p50)
	a.row("the same, files of the servers on a disk: pairs/s", onDisk(alternativeOne), perSecond)
	a.row("64 workers, a lock each: pairs/s", alternativeDistinct, perSecond)
	a.row("the same: processor time of all servers for a pair", alternativeDistinct, figure{sample.serversEach, duration})
	a.row("64 waiters of one host, 1 ms of work: grants/s", alternativeWaiters, perSecond)
	a.row("the same: p99 of a wait", alternativeWaiters, figure{sample.lockP99, duration})
	a.row("the same: least / most served waiter", alternativeWaiters, figure{sample.fairness, twoDigits})
	for _, n := range alternativeHosts {
		s := fleetScenario(n)
		a.row(fmt.Sprintf("%d hosts, one waiter each, 1 ms of work: grants/s", n), s, perSecond)
		a.row("the same: hand-over between hosts, p50", s, handOver)
		a.row("the same: longest wait of a host", s, figure{sample.longestWait, duration})
		a.row("the same: least / most served host", s, figure{sample.fairness, twoDigits})
		a.row("the same: processor time of all servers for a grant", s, figure{sample.serversEach, duration})
		a.row("the same: of the daemons of the hosts", s, figure{sample.daemonCPUEach, duration})
	}
	a.cells("64 readers on two hosts: grants/s beside a writer", func(name string) string {
		return a.reader(name, func(one readersRow) float64 { return one.Reads }, grouped)
	})
	a.cells("the same: wait of a writer, p50", func(name string) string {
		return a.reader(name, func(one readersRow) float64 { return one.P50 }, duration)
	})
	a.cells("the holder's process is killed: the next one has the lock after", func(name string) string { return duration(medianOfMs(a.Ends[name][processKilled])) })
	a.cells("the holder's host fails: the next one has the lock after", func(name string) string { return duration(medianOfMs(a.Ends[name][hostFails])) })
	a.cells("a server is killed, 10 hosts: longest time without a grant", func(name string) string {
		switch one, ok := a.Servers[name]; {
		case !ok:
			return ""
		case one.Pause == 0:
			return "until it runs again"
		default:
			return duration(one.Pause)
		}
	})
	a.cells(fmt.Sprintf("%d idle hosts: processor time of all servers in a second", idleHosts), func(name string) string { return duration(1000 * a.Idle[name].Servers) })
	a.cells("the same: of the daemons of the hosts", func(name string) string { return duration(1000 * a.Idle[name].Daemons) })
	a.row("round trip of 2 ms, one worker: p50 of a pair", networked(alternativeOne), p50)
	a.row("the same, 64 waiters of one host, 1 ms of work: grants/s", networked(alternativeWaiters), perSecond)
	a.row(fmt.Sprintf("the same, %d hosts, one waiter each: grants/s", networkHosts), networked(fleetScenario(networkHosts)), perSecond)
	a.row("the same: hand-over between hosts, p50", networked(fleetScenario(networkHosts)), handOver)
}

// row adds medians over the rounds.
func (a *alternativesReport) row(title string, s scenario, f figure) {
	a.cells(title, func(name string) string {
		got := a.series[seriesKey(s.title, name)]
		if got == nil || got.medianOf(f.of) == 0 && got.medianOf(sample.rate) == 0 {
			return ""
		}
		return f.text(got.medianOf(f.of))
	})
}

// reader returns the median of a figure over the rounds.
func (a *alternativesReport) reader(name string, of func(readersRow) float64, text func(float64) string) string {
	var values []float64
	for _, one := range a.Readers[name] {
		values = append(values, of(one))
	}
	if len(values) == 0 {
		return "none"
	}
	return text(median(values))
}

// cells adds a row, unless all its cells are empty.
func (a *alternativesReport) cells(title string, cell func(name string) string) {
	one := alternativesRow{Title: title}
	for _, name := range a.measured() {
		one.Cells = append(one.Cells, cell(name))
	}
	if strings.Join(one.Cells, "") != "" {
		a.Rows = append(a.Rows, one)
	}
}

// printAlternatives writes the table in the form of the page PERFORMANCE.
func (r *report) printAlternatives(w io.Writer) {
	a := r.Alternatives
	if a == nil {
		return
	}
	a.finish()
	names := a.measured()
	fmt.Fprintf(w, "| | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---:|", len(names)))
	for _, one := range a.Rows {
		fmt.Fprintf(w, "| %s | %s |\n", one.Title, strings.Join(one.Cells, " | "))
	}
	network := "no network"
	if a.Network != nil {
		network = fmt.Sprintf("emulated round trip: %.2f ms", a.Network.P50)
	}
	fmt.Fprintf(w, "\nMeasured with %s; %s; other programs kept %.1f processors busy.\n", a.Machine, network, r.Others)
	for name, why := range a.Skipped {
		fmt.Fprintf(w, "\n%s: skipped, %s\n", name, why)
	}
	var failures []string
	for _, s := range a.series {
		if sum := s.total(); sum.failed > 0 {
			failures = append(failures, fmt.Sprintf("\n%s, %s: %d locks or unlocks failed, the first: %v\n", s.title, s.contender, sum.failed, sum.failure))
		}
	}
	slices.Sort(failures)
	fmt.Fprint(w, strings.Join(failures, ""))
}
