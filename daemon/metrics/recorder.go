package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// Recorder counts and times events. A nil Recorder records nothing: metrics are off.
// Its methods are safe for concurrent use, and allocate nothing.
type Recorder struct {
	refusals   *prometheus.CounterVec // by code
	losses     *prometheus.CounterVec // by reason
	forces     prometheus.Counter
	heldBack   prometheus.Counter
	granted    prometheus.Observer // waiting times, by outcome
	notGranted prometheus.Observer
	holding    prometheus.Histogram
	extension  prometheus.Histogram
	roundTrips map[string]prometheus.Observer // by node; never changed after New

	all []prometheus.Collector // all metrics above
}

// The upper bounds of the histograms' buckets, in seconds; leftBuckets in shares of a ttl. A lease is
// extended when two thirds of its ttl are left, and lost when a fifth is left (the guard).
var (
	waitBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	holdBuckets = []float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 3 * 3600, 12 * 3600, 24 * 3600}
	leftBuckets = []float64{.05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55, .6, .65, .7, .8, .9, 1}
	tripBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
)

// allCodes are the codes of ERR.
var allCodes = []ipc.Code{
	ipc.CodeSyntax, ipc.CodeVerb, ipc.CodeName, ipc.CodeOption, ipc.CodeTooLong, ipc.CodeHeld, ipc.CodeNoQuorum, ipc.CodeCancelled,
	ipc.CodeNotHeld, ipc.CodeLost, ipc.CodeAlready, ipc.CodeDeadlock, ipc.CodeDenied, ipc.CodeLimit, ipc.CodeShutdown, ipc.CodeUnknown, ipc.CodeInternal,
}

// allReasons are the reasons of LOST.
var allReasons = []redlock.LostReason{redlock.LostQuorum, redlock.LostForced, redlock.LostMax, redlock.LostBeat, redlock.LostExpired}

// NewRecorder makes a Recorder for these nodes.
func NewRecorder(nodes []string) *Recorder {
	m := &Recorder{
		refusals:   prometheus.NewCounterVec(countOf("redlockd_refusals_total", "Requests answered with ERR, by the code of the protocol."), []string{"code"}),
		losses:     prometheus.NewCounterVec(countOf("redlockd_losses_total", "Leases lost, by the reason that LOST gives."), []string{"reason"}),
		forces:     prometheus.NewCounter(countOf("redlockd_forces_total", "Leases that clients of this daemon took away with FORCE, on any host.")),
		heldBack:   prometheus.NewCounter(countOf("redlockd_held_back_total", "Times that a connection had to wait because its user took more than a fair share.")),
		holding:    prometheus.NewHistogram(timesOf("redlockd_holding_seconds", "How long leases were held, from the grant to their release or end.", holdBuckets)),
		extension:  prometheus.NewHistogram(timesOf("redlockd_extension_left_ratio", "The share of its ttl that a lease had left when the daemon had extended it.", leftBuckets)),
		roundTrips: map[string]prometheus.Observer{},
	}
	waiting := prometheus.NewHistogramVec(timesOf("redlockd_waiting_seconds", "How long LOCK and TRY took, from the request to the grant or the refusal.", waitBuckets), []string{"outcome"})
	m.granted, m.notGranted = waiting.WithLabelValues("granted"), waiting.WithLabelValues("refused")
	trips := prometheus.NewHistogramVec(timesOf("redlockd_node_round_trip_seconds", "How long a node took to answer a group of calls.", tripBuckets), []string{"node"})
	for _, node := range nodes {
		m.roundTrips[node] = trips.WithLabelValues(node)
	}
	m.all = []prometheus.Collector{m.refusals, m.losses, m.forces, m.heldBack, m.holding, m.extension, waiting, trips}
	// Each series exists before its first event: Prometheus sees no increase in a series that begins with 1.
	for _, code := range allCodes {
		m.refusals.WithLabelValues(string(code))
	}
	for _, reason := range allReasons {
		m.losses.WithLabelValues(string(reason))
	}
	return m
}

func countOf(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func timesOf(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
}

// Refused counts a request that was answered with ERR.
func (m *Recorder) Refused(code ipc.Code) {
	if m != nil {
		m.refusals.WithLabelValues(string(code)).Inc()
	}
}

// Answered records how long a LOCK or TRY took until its answer.
func (m *Recorder) Answered(waited time.Duration, granted bool) {
	switch {
	case m == nil:
	case granted:
		m.granted.Observe(waited.Seconds())
	default:
		m.notGranted.Observe(waited.Seconds())
	}
}

// Held records how long a lease was held.
func (m *Recorder) Held(held time.Duration) {
	if m != nil {
		m.holding.Observe(held.Seconds())
	}
}

// Lost counts a LOST.
func (m *Recorder) Lost(reason redlock.LostReason) {
	if m != nil {
		m.losses.WithLabelValues(string(reason)).Inc()
	}
}

// Forced counts the leases that a FORCE revoked.
func (m *Recorder) Forced(n int) {
	if m != nil {
		m.forces.Add(float64(n))
	}
}

// HeldBack counts a connection that has to wait because its user used more than a fair share.
func (m *Recorder) HeldBack() {
	if m != nil {
		m.heldBack.Inc()
	}
}

// RoundTrip records how long a node took to answer.
func (m *Recorder) RoundTrip(node string, took time.Duration) {
	if m != nil {
		m.roundTrips[node].Observe(took.Seconds())
	}
}

// Extended records how much of its ttl a lease had left when it was extended.
func (m *Recorder) Extended(left, ttl time.Duration) {
	if m != nil {
		m.extension.Observe(left.Seconds() / ttl.Seconds())
	}
}
