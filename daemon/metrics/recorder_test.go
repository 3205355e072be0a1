package metrics

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// scraped has the value of each series, by name and labels as in the text format.
type scraped map[string]float64

func (s scraped) add(t *testing.T, line string) {
	t.Helper()
	at := strings.LastIndexByte(line, ' ')
	value, err := strconv.ParseFloat(line[at+1:], 64)
	if at < 0 || err != nil {
		t.Fatalf("not a metric: %q", line)
	}
	s[line[:at]] = value
}

// want fails the test if a series in want has another value or is missing.
func (s scraped) want(t *testing.T, want scraped) {
	t.Helper()
	for series, value := range want {
		if got, ok := s[series]; !ok || got != value {
			t.Errorf("%s: got %v (exists: %t), want %v", series, got, ok, value)
		}
	}
}

// scrapeOf returns the series of these collectors.
func scrapeOf(t *testing.T, collectors ...prometheus.Collector) scraped {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(collectors...)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	s := scraped{}
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			s.add(t, strings.TrimSpace(line))
		}
	}
	return s
}

// Every request uses the Recorder, so it must not allocate.
func TestRecorderAllocatesNothing(t *testing.T) {
	for name, m := range map[string]*Recorder{"on": NewRecorder([]string{"a"}), "off": nil} {
		if allocs := testing.AllocsPerRun(1000, func() {
			m.Answered(time.Second, true)
			m.Answered(time.Second, false)
			m.Held(0)
			m.Refused(ipc.CodeHeld)
			m.Lost(redlock.LostQuorum)
			m.Forced(1)
			m.RoundTrip("a", time.Millisecond)
			m.Extended(time.Second, 2*time.Second)
		}); allocs != 0 {
			t.Errorf("%s: got %v allocations, want none", name, allocs)
		}
	}
}

// Seconds, shares and counts are exported in their own series. A nil Recorder gets the same calls,
// and records nothing.
func TestRecorderUnits(t *testing.T) {
	m := NewRecorder([]string{"a", "b"})
	for _, m := range []*Recorder{m, nil} {
		m.Answered(2500*time.Millisecond, true)
		m.Answered(2500*time.Millisecond, false)
		m.Answered(2500*time.Millisecond, false)
		m.Refused(ipc.CodeNoQuorum)
		m.Lost(redlock.LostQuorum)
		m.Forced(3)
		m.HeldBack()
		m.RoundTrip("b", 250*time.Millisecond)
		m.Extended(4*time.Second, 16*time.Second)
	}
	scrapeOf(t, m.all...).want(t, scraped{
		`redlockd_waiting_seconds_sum{outcome="granted"}`:   2.5,
		`redlockd_waiting_seconds_sum{outcome="refused"}`:   5,
		`redlockd_waiting_seconds_count{outcome="refused"}`: 2,
		`redlockd_refusals_total{code="NOQUORUM"}`:          1,
		`redlockd_refusals_total{code="HELD"}`:              0,
		`redlockd_losses_total{reason="quorum"}`:            1,
		`redlockd_losses_total{reason="forced"}`:            0,
		`redlockd_forces_total`:                             3,
		`redlockd_held_back_total`:                          1,
		`redlockd_node_round_trip_seconds_sum{node="b"}`:    .25,
		`redlockd_node_round_trip_seconds_count{node="a"}`:  0,
		`redlockd_extension_left_ratio_sum`:                 .25,
		`redlockd_holding_seconds_count`:                    0,
	})
}
