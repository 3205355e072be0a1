package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/metrics"
)

// freeAddress returns a loopback address with a port that the kernel chose. The address depends on the
// process id, so that test processes use different addresses of 127/8.
func freeAddress(t testing.TB) string {
	t.Helper()
	pid := os.Getpid()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 64+pid>>16&63, pid>>8&255, pid&255))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// startWithMetrics starts a daemon with metrics.
func startWithMetrics(t *testing.T, n int) *testDaemon {
	t.Helper()
	return startDaemon(t, n, func(cfg *config.Config) { cfg.Metrics = &config.Metrics{Address: freeAddress(t)} })
}

// scraped has the value of each series, by name and labels as in the text format.
type scraped map[string]float64

func (d *testDaemon) scrape() scraped {
	d.T.Helper()
	s := scraped{}
	for line := range strings.Lines(d.metrics().String()) {
		if !strings.HasPrefix(line, "#") {
			s.add(d.T, strings.TrimSpace(line))
		}
	}
	return s
}

// metrics returns the text that Prometheus gets.
func (d *testDaemon) metrics() *bytes.Buffer {
	d.T.Helper()
	response, err := http.Get("http://" + d.Cfg.Metrics.Address + "/metrics")
	if err != nil {
		d.T.Fatal(err)
	}
	defer response.Body.Close()
	text := new(bytes.Buffer)
	if _, err := text.ReadFrom(response.Body); err != nil || response.StatusCode != http.StatusOK {
		d.T.Fatalf("%s, %v: %s", response.Status, err, text)
	}
	return text
}

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

// untilScraped scrapes until a series has that value.
func (d *testDaemon) untilScraped(series string, want float64) {
	d.T.Helper()
	daemontest.Eventually(d.T, fmt.Sprint(series, " is ", want), func() bool { return d.scrape()[series] == want })
}

// Each request is counted in its series.
func TestMetricsOfRequests(t *testing.T) {
	d := startWithMetrics(t, 3)
	first, second := d.dial(), d.dial()
	first.Say("LOCK a", granted5)
	second.Say("LOCK a wait=0", `ERR HELD .*`)
	second.Say("TRY a", `ERR HELD .*`)
	second.Say("LOKC a", `ERR VERB .*`)
	second.Say("UNLOCK a", `ERR NOTHELD .*`)
	second.Send("LOCK a")
	d.untilScraped("redlockd_waiters", 1)
	d.scrape().want(t, scraped{
		`redlockd_connections`:   2,
		`redlockd_leases`:        1,
		`redlockd_queue_longest`: 1,
		`redlockd_grants_total`:  1,

		`redlockd_table_unwritten`: 0,

		`redlockd_refusals_total{code="HELD"}`:     2,
		`redlockd_refusals_total{code="VERB"}`:     1,
		`redlockd_refusals_total{code="NOTHELD"}`:  1,
		`redlockd_refusals_total{code="NOQUORUM"}`: 0,
		`redlockd_holding_seconds_count`:           0,

		`redlockd_waiting_seconds_count{outcome="granted"}`: 1,
		`redlockd_waiting_seconds_count{outcome="refused"}`: 2,
	})
	first.Say("UNLOCK a", `OK lock=a`)
	second.Want(granted5)
	d.scrape().want(t, scraped{
		`redlockd_waiters`:       0,
		`redlockd_queue_longest`: 0,
		`redlockd_leases`:        1,
		`redlockd_grants_total`:  2,

		`redlockd_waiting_seconds_count{outcome="granted"}`: 2,
		`redlockd_holding_seconds_count`:                    1,
	})
}

// Extensions that the daemon makes are measured; they begin after a third of the ttl. EXTEND of a
// client is not, because its time says nothing about the nodes.
func TestMetricsOfExtensions(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startWithMetrics(t, 3)
	w := d.dial()
	w.Say("LOCK a ttl=6s", granted5)
	daemontest.Eventually(t, "extensions are counted", func() bool { return d.scrape()["redlockd_extension_left_ratio_count"] > 1 })
	s := d.scrape()
	mean := s["redlockd_extension_left_ratio_sum"] / s["redlockd_extension_left_ratio_count"]
	if mean <= 0 || mean > .7 {
		t.Errorf("got %v of the ttl left, want at most two thirds and 5 ms", mean)
	}
	w.Say("LOCK b ttl=30s", granted5)
	w.Say("UNLOCK a", `OK .*`)
	before := d.scrape()["redlockd_extension_left_ratio_count"]
	w.Say("EXTEND b", `OK lock=b .*`)
	d.scrape().want(t, scraped{"redlockd_extension_left_ratio_count": before})
}

// Each loss is counted by its reason, and each FORCE.
func TestMetricsOfLosses(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startWithMetrics(t, 3)
	w, admin := d.dial(), d.dial()
	w.Say("LOCK a ttl=1s hold=ttl", granted5)
	w.Want(`LOST lock=a .* reason=expired .*`)
	w.Say("LOCK b ttl=5s max=1s", granted5)
	w.Want(`LOST lock=b .* reason=max .*`)
	w.Say("LOCK c ttl=20s", granted5)
	admin.Say("FORCE nobody", `OK lock=nobody n=0 .*`)
	admin.Say("FORCE c", `OK lock=c n=1 held=\d .*`)
	w.Want(`LOST lock=c .* reason=forced .*`)
	d.untilScraped("redlockd_holding_seconds_count", 3) // each counts at its deadline
	if held := d.scrape()["redlockd_holding_seconds_sum"]; held < 1 || held > 60 {
		t.Errorf("the leases were held for %v s, want some seconds", held)
	}
	d.scrape().want(t, scraped{
		`redlockd_losses_total{reason="expired"}`: 1,
		`redlockd_losses_total{reason="max"}`:     1,
		`redlockd_losses_total{reason="forced"}`:  1,
		`redlockd_losses_total{reason="quorum"}`:  0,
		`redlockd_forces_total`:                   1,
		`redlockd_held_back_total`:                0,
		`redlockd_leases`:                         0,
	})
}

// The metrics have the states of the nodes, their round trips, and how many may fail.
func TestMetricsOfNodes(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startWithMetrics(t, 3)
	d.untilScraped("redlockd_quorum_spare", 1)
	d.scrape().want(t, scraped{
		`redlockd_nodes`:  3,
		`redlockd_quorum`: 2,

		`redlockd_node_state{node="a",state="ready"}`:                                            1,
		`redlockd_node_state{node="a",state="quarantined"}`:                                      0,
		`redlockd_node_quarantine_left_seconds{node="a"}`:                                        0,
		`redlockd_build_info{goversion="` + runtime.Version() + `",version="` + Version() + `"}`: 1,
	})
	if n := d.scrape()[`redlockd_node_round_trip_seconds_count{node="b"}`]; n == 0 {
		t.Error("got no round trip of node b, which is ready")
	}
	for _, server := range d.Nodes.Servers[1:] {
		server.Kill()
	}
	d.untilScraped("redlockd_quorum_spare", -1)
	d.scrape().want(t, scraped{
		`redlockd_node_state{node="b",state="down"}`:  1,
		`redlockd_node_state{node="b",state="ready"}`: 0,
	})
	if err := d.Nodes.Servers[1].Restart(); err != nil {
		t.Fatal(err)
	}
	d.untilScraped(`redlockd_node_state{node="b",state="quarantined"}`, 1)
	d.untilScraped("redlockd_quarantines_total", 1)
	if left := d.scrape()[`redlockd_node_quarantine_left_seconds{node="b"}`]; left <= 0 {
		t.Errorf("got %v s left of the quarantine, want more than 0", left)
	}
}

// The number of series does not grow with locks, users or connections.
func TestMetricsAreBounded(t *testing.T) {
	d := startWithMetrics(t, 3)
	before := d.scrape()
	for i := range 20 {
		w := d.dial()
		w.Say(fmt.Sprintf("LOCK secret-%d note=secret-note owner=secret-%d", i, i), granted5)
		w.Say(fmt.Sprintf("TRY secret-%d", i), `ERR HELD .*`)
		w.Say(fmt.Sprintf("@t%d UNLOCK x", i), `@t\d+ ERR NOTHELD .*`)
		w.Say(fmt.Sprintf("UNLOCK secret-%d owner=secret-%d", i, i), `OK .*`)
	}
	after := d.scrape()
	if len(before) != len(after) {
		t.Errorf("got %d series at first and %d later, want the same number", len(before), len(after))
	}
	for series := range after {
		if strings.Contains(series, "secret") {
			t.Errorf("a series has a name of a client: %s", series)
		}
	}
}

// Connections for metrics use only a few of the descriptors that clients and nodes need, and cannot
// keep Prometheus out.
func TestMetricsRoom(t *testing.T) {
	d := startWithMetrics(t, 1)
	const more = 20
	var conns []net.Conn
	for range metrics.MaxConnections + more {
		conn, err := net.Dial("tcp", d.Cfg.Metrics.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for i, conn := range conns[:more] {
		conn.SetReadDeadline(time.Now().Add(daemontest.Patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d is still open (%v), want it closed", i+1, len(conns), err)
		}
	}
	d.scrape().want(t, scraped{"redlockd_leases": 0})
	last := conns[len(conns)-1]
	fmt.Fprint(last, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	last.SetReadDeadline(time.Now().Add(daemontest.Patience))
	if _, err := last.Read(make([]byte, 1)); err != nil {
		t.Errorf("the newest of the idle connections is not served: %v", err)
	}
}

// When Run has returned, nothing listens for metrics, even if a client has sent only a part of a
// request.
func TestMetricsStopWithDaemon(t *testing.T) {
	t.Parallel() // it mostly waits
	d := startWithMetrics(t, 1)
	d.scrape()
	slow, err := net.Dial("tcp", d.Cfg.Metrics.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "GET /metrics HTTP/1.1\r\n")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", d.Cfg.Metrics.Address); err == nil {
		conn.Close()
		t.Error("the metrics port still accepts connections")
	}
	slow.SetReadDeadline(time.Now().Add(daemontest.Patience))
	if _, err := slow.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the unfinished connection: got %v, want it closed", err)
	}
}

// The page shows the state of the daemon, and names only if the config says so.
func TestStatusPageOfADaemon(t *testing.T) {
	for _, names := range []bool{false, true} {
		d := startDaemon(t, 1, func(cfg *config.Config) {
			cfg.Metrics = &config.Metrics{Address: freeAddress(t), Page: true, Names: names}
		})
		holder, waiter := d.dial(), d.dial()
		holder.Say("LOCK page/held note=secret-note", granted5)
		waiter.Send("LOCK page/held")
		d.untilScraped("redlockd_waiters", 1)
		response, err := http.Get("http://" + d.Cfg.Metrics.Address + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text := new(bytes.Buffer)
		if _, err := text.ReadFrom(response.Body); err != nil {
			t.Fatal(err)
		}
		want := 0
		if names {
			want = 2
		}
		if n := strings.Count(text.String(), ">page/held</td>"); n != want || !strings.Contains(text.String(), `<dd id="waiters">1</dd>`) {
			t.Errorf("names = %t: the page has the lock %d times, want %d:\n%s", names, n, want, text)
		}
		if strings.Contains(text.String(), "secret-note") {
			t.Error("the page shows a note")
		}
		ready, err := http.Get("http://" + d.Cfg.Metrics.Address + "/readyz")
		if err != nil || ready.StatusCode != http.StatusOK {
			t.Errorf("/readyz: %v, %v", ready, err)
		}
		ready.Body.Close()
	}
}
