package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// meter counts and times what happens, for Prometheus. Nil is one that is
// switched off. What can be read off when it is asked for is not counted here: see
// metrics_status.go. No label is a lock's name or a user's, so that no client
// makes the number of series grow.
type meter struct {
	refusals   *prometheus.CounterVec // by code
	losses     *prometheus.CounterVec // by reason
	forces     prometheus.Counter
	heldBack   prometheus.Counter
	granted    prometheus.Observer // waiting times, by outcome
	notGranted prometheus.Observer
	holding    prometheus.Histogram
	extension  prometheus.Histogram
	roundTrips map[string]prometheus.Observer // by node; not changed once made

	all []prometheus.Collector // of the above
}

// Bounds of the histograms' buckets: seconds, and shares of a ttl. A lease that
// can be extended at once is so when two thirds of its ttl are left, and lost
// when the guard is, a fifth.
var (
	waitBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	holdBuckets = []float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 3 * 3600, 12 * 3600, 24 * 3600}
	leftBuckets = []float64{.05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55, .6, .65, .7, .8, .9, 1}
	tripBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
)

// allCodes are those with which a request can be refused.
var allCodes = []ipc.Code{
	ipc.CodeSyntax, ipc.CodeVerb, ipc.CodeName, ipc.CodeOption, ipc.CodeTooLong, ipc.CodeHeld, ipc.CodeNoQuorum, ipc.CodeCancelled,
	ipc.CodeNotHeld, ipc.CodeLost, ipc.CodeAlready, ipc.CodeDeadlock, ipc.CodeDenied, ipc.CodeLimit, ipc.CodeShutdown, ipc.CodeInternal,
}

// newMeter makes the meter that the config wants; nil if it wants none.
func newMeter(cfg *config.Config) *meter {
	if cfg.Metrics == nil {
		return nil
	}
	m := &meter{
		refusals:   prometheus.NewCounterVec(countOf("redlockd_refusals_total", "Requests that were answered with ERR, by the code of the protocol."), []string{"code"}),
		losses:     prometheus.NewCounterVec(countOf("redlockd_losses_total", "Leases lost, by the reason that LOST gives."), []string{"reason"}),
		forces:     prometheus.NewCounter(countOf("redlockd_forces_total", "Leases, of whatever host, taken away with FORCE by clients of this daemon.")),
		heldBack:   prometheus.NewCounter(countOf("redlockd_held_back_total", "Times that a connection had to wait because its user took more than his share beside others.")),
		holding:    prometheus.NewHistogram(timesOf("redlockd_holding_seconds", "How long leases were held, from the grant until they were given back or over.", holdBuckets)),
		extension:  prometheus.NewHistogram(timesOf("redlockd_extension_left_ratio", "The share of its ttl that a lease had left when it had been extended as it was due.", leftBuckets)),
		roundTrips: map[string]prometheus.Observer{},
	}
	waiting := prometheus.NewHistogramVec(timesOf("redlockd_waiting_seconds", "How long LOCK and TRY took, from the request to the grant or the refusal.", waitBuckets), []string{"outcome"})
	m.granted, m.notGranted = waiting.WithLabelValues("granted"), waiting.WithLabelValues("refused")
	trips := prometheus.NewHistogramVec(timesOf("redlockd_node_round_trip_seconds", "How long a node took to answer a group of calls.", tripBuckets), []string{"node"})
	for _, node := range cfg.Quorum.Nodes {
		m.roundTrips[node.Name] = trips.WithLabelValues(node.Name)
	}
	m.all = []prometheus.Collector{m.refusals, m.losses, m.forces, m.heldBack, m.holding, m.extension, waiting, trips}
	m.beginAtZero()
	return m
}

func countOf(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func timesOf(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
}

// beginAtZero has every series be there before the first event: Prometheus sees
// no increase in a series that begins with 1.
func (m *meter) beginAtZero() {
	for _, code := range allCodes {
		m.refusals.WithLabelValues(string(code))
	}
	for reason := range lostText {
		m.losses.WithLabelValues(string(reason))
	}
}

// registry is all that is told when Prometheus asks.
func (d *daemon) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(d.meter.all...)
	r.MustRegister(statusCollector{d}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// refused counts a request that was answered with ERR.
func (m *meter) refused(code ipc.Code) {
	if m != nil {
		m.refusals.WithLabelValues(string(code)).Inc()
	}
}

// answered takes the time of a LOCK that has come to its end.
func (m *meter) answered(a *ask, err error) {
	switch {
	case m == nil:
	case err == nil:
		m.granted.Observe(a.waited().Seconds())
	default:
		m.notGranted.Observe(a.waited().Seconds())
	}
}

// ended takes the time of a lease that is held no more. One that was lost before
// its client knew of it was held by nobody.
func (m *meter) ended(h *holding, now time.Duration) {
	if m != nil && h.hasBegun() {
		m.holding.Observe((now - h.lease.Since()).Seconds())
	}
}

// hasBegun tells whether it has its lease.
func (h *holding) hasBegun() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stage != asked
}

// lost counts a LOST.
func (m *meter) lost(reason redlock.LostReason) {
	if m != nil {
		m.losses.WithLabelValues(string(reason)).Inc()
	}
}

// forced counts the leases that a FORCE took away.
func (m *meter) forced(n int) {
	if m != nil {
		m.forces.Add(float64(n))
	}
}

// holdsBack counts a connection that has to wait for its user's share.
func (m *meter) holdsBack() {
	if m != nil {
		m.heldBack.Inc()
	}
}

// roundTrip takes the time of a node's answer.
func (m *meter) roundTrip(node string, took time.Duration) {
	if m != nil {
		m.roundTrips[node].Observe(took.Seconds())
	}
}

// extended takes what a lease had left when it was extended.
func (m *meter) extended(left, ttl time.Duration) {
	if m != nil {
		m.extension.Observe(left.Seconds() / ttl.Seconds())
	}
}
