package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestMedianAndQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i)
	}
	if got := quantile(hundred, 0.99); got != 99 {
		t.Errorf("p99 of 0..99 is %d, want 99", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("p50 of nothing is %d, want 0", got)
	}
}

// testSeries has rounds of one second, with the given numbers of pairs of one millisecond.
func testSeries(contender string, counts ...int) *series {
	s := &series{scenario: scenario{part: "distinct", title: "many"}, contender: contender, rounds: map[int]sample{}}
	for round, n := range counts {
		latencies := make([]time.Duration, n)
		for i := range latencies {
			latencies[i] = time.Millisecond
		}
		s.rounds[round] = sample{pairs: pairs{latencies: latencies, elapsed: time.Second}, usage: usage{bench: time.Second},
			counters: counters{commands: int64(10 * n)}}
	}
	return s
}

func TestRatiosAreOfRounds(t *testing.T) {
	r := &report{}
	// The second round was disturbed for all contenders. The medians of the rates are 20 and 100,
	// the median of the ratios is 10.
	r.addPairs([]*series{testSeries(baseline, 20, 1, 20), testSeries(redlockdTags, 200, 100, 100)})
	got := r.Rows[1]
	if got.Rate != 100 || got.RateRatio != 10 || got.Commands != 10 {
		t.Errorf("rate %v, ratio %v, commands %v; want 100, 10, 10", got.Rate, got.RateRatio, got.Commands)
	}
	if got := perTenThousand(3, 400); got != 75 {
		t.Errorf("3 s for 400 pairs are %v s for 10,000, want 75", got)
	}
}

func TestRoundsWithoutBaseline(t *testing.T) {
	if got := testSeries(redlockdTags, 50, 80).ratioTo(testSeries(baseline, 10), sample.rate); got != 5 {
		t.Errorf("ratio %v, want 5: of the round that both have", got)
	}
	if got := testSeries(redlockdTags, 50).ratioTo(&series{}, sample.rate); got != 0 {
		t.Errorf("ratio %v to nothing, want 0", got)
	}
}

func TestTargets(t *testing.T) {
	r := &report{
		Rows: []row{
			{Part: "distinct", Contender: redlockdTags, BeforeRateRatio: 0.96, P50: 1, P99: 9},
			{Part: "distinct", Contender: redlockdConns, BeforeRateRatio: 0.97, P50: 1, P99: 9},
			{Part: "distinct", Contender: redlockdConns, Hung: true, P50: 1.31, P99: 49.9},
			{Part: "one", Contender: redlockdTags, BeforeP50Ratio: 1.03},
			{Part: "same", Contender: redlockdTags, P50: 100, P99: 200},
			{Part: "same", Contender: redlockdTags, Hung: true, P50: 50, P99: 120},
		},
		Memory: &memory{Idle: 18_000_000, Conns: 10, PerConn: 16<<10 - 1},
		Held:   []heldRow{{Contender: redlockdTags, Leases: 5, Lost: 1, Daemon: 0.2, PerLease: 2000}},
	}
	var verdicts []string
	for _, one := range targetsOf(r) {
		if one.Pass {
			verdicts = append(verdicts, "pass")
		} else {
			verdicts = append(verdicts, "MISS")
		}
	}
	want := "MISS pass pass MISS pass MISS MISS pass MISS pass pass"
	if got := strings.Join(verdicts, " "); got != want {
		t.Errorf("verdicts\n%s, want\n%s", got, want)
	}
	if got := targetsOf(&report{}); len(got) != 0 {
		t.Errorf("nothing measured, yet judged: %v", got)
	}
}

func TestFaultOfClashes(t *testing.T) {
	r := &report{Rows: []row{{Contender: "x", Scenario: "y"}}}
	if err := r.fault(); err != nil {
		t.Errorf("no clash, yet %v", err)
	}
	r.Rows[0].Clashes = 2
	if err := r.fault(); err == nil || !strings.Contains(err.Error(), "held twice, 2 times") {
		t.Errorf("two clashes: %v", err)
	}
}

func TestTableIsAligned(t *testing.T) {
	tab := &table{header: []string{"a", "b", "c ×"}}
	tab.add("left", "x", "1.00")
	var out bytes.Buffer
	tab.print(&out)
	want := "| a    | b  |  c × |\n| ---- | -- | ---: |\n| left | x  | 1.00 |\n"
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
}

func TestOptions(t *testing.T) {
	var out bytes.Buffer
	o, err := parseOptions([]string{"-quick", "-rounds", "7", "-only", "one,held"}, &out)
	if err != nil || o.rounds != 7 || o.slice != 500*time.Millisecond || !o.wants("held") || o.wants("memory") {
		t.Errorf("options %+v, %v", o, err)
	}
	if o, err = parseOptions([]string{"-rtt", "2ms"}, &out); err != nil || !o.wants(networkPart) || o.wants("one") {
		t.Errorf("with a network: %+v, %v; want that part alone", o, err)
	}
	for _, args := range [][]string{{"-rtt", "2ms", "-only", "one"}, {"-only", networkPart}, {"-rtt", "1s"}, {"-rows", "work"}, {"-rtt", "2ms", "-rows", "none"}} {
		if _, err := parseOptions(args, &out); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	_, err = parseOptions([]string{"-only", "two", "-rounds", "0", "-share", "2", "rest"}, &out)
	if err == nil || len(strings.Split(err.Error(), "\n")) != 4 {
		t.Errorf("four faults, all at once; got %v", err)
	}
}

func TestInfoNumber(t *testing.T) {
	info := "# Stats\r\ntotal_commands_processed:12\r\ntotal_reads_processed:7\r\n"
	if got := infoNumber(info, "total_reads_processed"); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	if got := infoNumber(info, "no_such"); got != 0 {
		t.Errorf("got %d for a field that is not there, want 0", got)
	}
}

func TestBusyTime(t *testing.T) {
	got, err := busyTime("cpu  100 1 20 9999 888 3 4 777 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if want := 1280 * time.Millisecond; err != nil || got != want {
		t.Errorf("busy for %v, %v; want %v", got, err, want)
	}
	if _, err := busyTime("cpu 1 2"); err == nil {
		t.Error("a short line was understood")
	}
}
