package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// testAlternatives starts the servers of each alternative that is installed, and calls do for it.
func testAlternatives(t *testing.T, do func(t *testing.T, b *alternativesBench, s *installation)) {
	env := testEnvironment(t)
	for _, a := range alternatives {
		if a.missing != nil && a.missing() != "" {
			t.Logf("%s: %s", a.name, a.missing())
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			dir := shortDir(t)
			c, err := a.start(t.Context(), dir, delays{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.kill)
			b := &alternativesBench{opts: options{rounds: 1, slice: 100 * time.Millisecond}, env: env, logs: io.Discard, report: newAlternativesReport(options{})}
			do(t, b, b.install(a, c, dir))
		})
	}
}

// shortDir returns a directory whose path is short enough for sockets, unlike that of t.TempDir.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rlbench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Workers of two hosts exclude each other, and so do readers and writers.
func TestAlternativesExclude(t *testing.T) {
	t.Parallel() // servers of its own, and no figure is compared with a time
	testAlternatives(t, func(t *testing.T, b *alternativesBench, s *installation) {
		one := scenario{title: "one lock", workers: 6, shared: true, hold: contendedHold}
		if err := b.measure(t.Context(), s, 2, 0, measured{one, 5 * retryLessThan}); err != nil {
			t.Fatal(err)
		}
		got := b.report.series[seriesKey(one.title, s.name)].rounds[0]
		if len(got.latencies) < 2 || got.failed > 0 || got.clashes > 0 {
			t.Errorf("%d pairs, %d failures (%v), %d clashes; want pairs and nothing else", len(got.latencies), got.failed, got.failure, got.clashes)
		}
		if err := b.readers(t.Context(), s, 0); err != nil {
			t.Fatal(err)
		}
		for _, one := range b.report.Readers[s.name] {
			if one.Together != workersAtOnce || one.Clashes > 0 {
				t.Errorf("readers: %+v; want %d together, and no clash", one, workersAtOnce)
			}
		}
	})
}

// The lock of a killed holder gets free, and the client on the other host has it then, not earlier.
func TestAlternativesFreeTheLockOfAKilledHolder(t *testing.T) {
	t.Parallel() // mostly waits
	testAlternatives(t, func(t *testing.T, b *alternativesBench, s *installation) {
		t.Parallel()
		took, err := s.afterEnd(t.Context(), shortDir(t), processKilled, "killed")
		if err != nil {
			t.Fatal(err)
		}
		if atOnce := s.name == ofRedlockd; atOnce != (took < pairTTL/2) {
			t.Errorf("free after %v with a lease time of %v; want at once: %v", took, pairTTL, atOnce)
		}
	})
}

func TestChildrenThatExclude(t *testing.T) {
	children := []string{"_c_b-read-0000000004", "_c_a-read-0000000002", "_c_d-write-0000000003", "_c_c-write-0000000005", "_c_e-read-0000000001"}
	for own, want := range map[string]string{
		"_c_e-read-0000000001":  "",
		"_c_a-read-0000000002":  "", // readers do not wait for readers
		"_c_d-write-0000000003": "_c_a-read-0000000002",
		"_c_b-read-0000000004":  "_c_d-write-0000000003",
		"_c_c-write-0000000005": "_c_b-read-0000000004",
	} {
		if got := excluding(children, own); got != want {
			t.Errorf("%s waits for %q, want %q", own, got, want)
		}
	}
}

func TestLongestPause(t *testing.T) {
	p := pairs{grants: [][]time.Duration{{1, 4, 11}, {2, 8}}}
	if got := p.longestPause(3, 13); got != 4 {
		t.Errorf("between 4 and 8: %d, want 4", got)
	}
	if got := p.longestPause(3, 20); got != 0 {
		t.Errorf("nobody had a grant after 11, and the end is 20: %d, want 0", got)
	}
}

// testAlternativesReport has figures of two alternatives; the others are skipped.
func testAlternativesReport() *alternativesReport {
	a := newAlternativesReport(options{})
	for _, one := range alternatives[2:] {
		a.Skipped[one.name] = "not here"
	}
	for i, one := range alternatives[:2] {
		s := testSeries(one.name, 1000*(i+1), 1000*(i+1))
		for round, got := range s.rounds {
			a.add(alternativeOne, one.name, round, got)
			got.served, got.grants = []int{2, 4}, [][]time.Duration{{time.Second / 2}, {time.Second}}
			a.add(fleetScenario(2), one.name, round, got)
		}
		a.addEnd(one.name, processKilled, time.Duration(1+i*9_999)*time.Millisecond)
	}
	a.Servers[ofRedlockd], a.Servers[ofRedsync] = serverEnd{Pause: 20}, serverEnd{}
	return a
}

func TestAlternativesTable(t *testing.T) {
	r := &report{Alternatives: testAlternativesReport()}
	var out bytes.Buffer
	r.printAlternatives(&out)
	for _, want := range []string{
		"| | redlockd | redsync |\n|---|---:|---:|\n",
		"| one worker: pairs/s | 1,000 | 2,000 |\n",
		"| the same: least / most served host | 0.50 | 0.50 |\n",
		"| the holder's process is killed: the next one has the lock after | 1.00 ms | 10.0 s |\n",
		"| a server is killed, 10 hosts: longest time without a grant | 20.0 ms | until it runs again |\n",
		"\netcd: skipped, not here\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "64 waiters") {
		t.Errorf("a row without figures is in\n%s", out.String())
	}
	if err := r.fault(); err != nil {
		t.Errorf("no clash, yet %v", err)
	}
	r.Alternatives.Servers["etcd"] = serverEnd{Clashes: 1}
	if r.fault() == nil {
		t.Error("a clash, and no fault")
	}
}

func TestPicture(t *testing.T) {
	drawn := testAlternativesReport().picture()
	texts := map[string]bool{}
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, drawn)
		}
		if text, ok := token.(xml.CharData); ok {
			texts[string(text)] = true
		}
	}
	for _, want := range []string{ofRedlockd, ofRedsync, "2 hosts", "10.0 s"} {
		if !texts[want] {
			t.Errorf("%q is not in the picture:\n%s", want, drawn)
		}
	}
}

func TestScaleOfAnAxis(t *testing.T) {
	for most, want := range map[float64]string{713: "800 200", 10: "10 2", 9.5: "10 2", 0: "1 1", 1100: "1200 200"} {
		top, step := scaleOf(most)
		if got := fmt.Sprint(top, " ", step); got != want {
			t.Errorf("up to %v: %s, want %s", most, got, want)
		}
	}
}
