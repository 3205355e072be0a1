package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlockd/redlockd/redlock"
)

// Snapshot is the state of the daemon at one moment.
type Snapshot struct {
	Version      string
	Connections  int
	Leases       int
	Waiters      int
	LongestQueue int  // waiters for the name with the most of them
	Draining     bool // the daemon stops, and grants no new locks
	Unwritten    bool // the state file cannot be written

	Quorum          redlock.Status
	CertificateEnds map[string]time.Time // by node, if it is known
}

// collector reads a Snapshot at each scrape.
type collector struct{ snapshot func() Snapshot }

// The metrics of collector: of the daemon, of the quorum and of each node.
var (
	descBuild = desc("redlockd_build_info", "1, with the version of redlockd and of the Go that built it.", "version", "goversion")

	descConnections = desc("redlockd_connections", "Clients connected.")
	descLeases      = desc("redlockd_leases", "Leases held.")
	descWaiters     = desc("redlockd_waiters", "LOCKs that wait, on this host or for the nodes.")
	descUnwritten   = desc("redlockd_table_unwritten", "1: the state file cannot be written, and a restart would lose leases and waiters.")
	descLongest     = desc("redlockd_queue_longest", "Waiters for the lock with the most waiters.")

	descNodes           = desc("redlockd_nodes", "Nodes of the config.")
	descQuorum          = desc("redlockd_quorum", "Nodes that a lock needs.")
	descSpare           = desc("redlockd_quorum_spare", "How many more nodes may fail; below 0: no lock can be taken.")
	descMaxTTL          = desc("redlockd_max_ttl_seconds", "The largest max_ttl of all hosts; also how long a quarantine lasts.")
	descLeft            = desc("redlockd_quorum_left_seconds", "Time until the end of the quarantines that prevent a quorum; 0: none do.")
	descState           = desc("redlockd_node_state", "1 for the current state of a node, 0 for the other states.", "node", "state")
	descNodeLeft        = desc("redlockd_node_quarantine_left_seconds", "Time left of a node's quarantine; 0 also if it waits for something else.", "node")
	descNodeWrite       = desc("redlockd_node_write_seconds", "How long a node took for the last calls that wrote; 0: there were none.", "node")
	descWarnings        = desc("redlockd_node_warnings", "Warnings about a node; redlock status shows them.", "node")
	descCertificateEnds = desc("redlockd_node_certificate_end_timestamp_seconds", "When the first certificate expires that the next connection to a node needs, in Unix time.", "node")
	descChange          = desc("redlockd_nodes_change", "1 for the current step of the change of the nodes in the config, 0 for the other steps.", "step")
	allSteps            = []redlock.ChangeStep{redlock.ChangeBegins, redlock.ChangeBegun, redlock.ChangeCommitted, redlock.ChangeDone}
	allNodeStates       = []redlock.NodeState{redlock.NodeReady, redlock.NodeConnecting, redlock.NodeDown, redlock.NodeQuarantined, redlock.NodeRefused}
)

// counters are the metrics of redlock.Counts.
var counters = []struct {
	desc *prometheus.Desc
	of   func(*redlock.Counts) uint64
}{
	{desc("redlockd_grants_total", "Locks granted."), func(c *redlock.Counts) uint64 { return c.Grants }},
	{desc("redlockd_hand_overs_total", "Releases that passed the lock to the next waiter of this host in the same call."), func(c *redlock.Counts) uint64 { return c.HandOvers }},
	{desc("redlockd_passes_total", "Grants that asked no node, because a client of this host had just released the lock."), func(c *redlock.Counts) uint64 { return c.Passes }},
	{desc("redlockd_splits_total", "Attempts refused because several clients took the lock on some nodes each."), func(c *redlock.Counts) uint64 { return c.Splits }},
	{desc("redlockd_wake_ups_total", "Waits that ended because a node reported that the lock may be free."), func(c *redlock.Counts) uint64 { return c.Wakeups }},
	{desc("redlockd_write_backs_total", "Grants and attempts that needed a second round for the fencing token."), func(c *redlock.Counts) uint64 { return c.WriteBacks }},
	{desc("redlockd_repairs_total", "Locks written again to a node that had lost them."), func(c *redlock.Counts) uint64 { return c.Repairs }},
	{desc("redlockd_quarantines_total", "Quarantines of nodes that this daemon started."), func(c *redlock.Counts) uint64 { return c.Quarantines }},
	{desc("redlockd_clock_jumps_total", "Clock jumps of nodes and of this host."), func(c *redlock.Counts) uint64 { return c.ClockJumps }},
	{desc("redlockd_withdrawals_total", "Times that a node lost its vote, for a clock jump or for the data of other hosts."), func(c *redlock.Counts) uint64 { return c.Withdrawals }},
	{desc("redlockd_fencing_resets_total", "Times that fencing tokens restarted because a quorum of nodes had no counters."), func(c *redlock.Counts) uint64 { return c.CounterLosses }},
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		descBuild, descConnections, descLeases, descWaiters, descLongest, descUnwritten,
		descNodes, descQuorum, descSpare, descMaxTTL, descLeft, descState, descNodeLeft, descNodeWrite, descWarnings, descCertificateEnds, descChange,
	} {
		to <- desc
	}
	for _, count := range counters {
		to <- count.desc
	}
}

// Collect implements prometheus.Collector. It contacts no node.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s, to := c.snapshot(), collection(ch)
	to.gauge(descBuild, 1, s.Version, runtime.Version())
	to.gauge(descConnections, float64(s.Connections))
	to.gauge(descLeases, float64(s.Leases))
	to.gauge(descWaiters, float64(s.Waiters))
	to.gauge(descLongest, float64(s.LongestQueue))
	to.gauge(descUnwritten, oneIf(s.Unwritten))
	to.collectNodes(&s.Quorum)
	for node, end := range s.CertificateEnds {
		to.gauge(descCertificateEnds, float64(end.Unix()), node)
	}
	for _, count := range counters {
		to <- prometheus.MustNewConstMetric(count.desc, prometheus.CounterValue, float64(count.of(&s.Quorum.Counts)))
	}
}

// collection is the channel that metrics are sent to.
type collection chan<- prometheus.Metric

func (c collection) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	c <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func (c collection) collectNodes(status *redlock.Status) {
	c.gauge(descNodes, float64(len(status.Nodes)))
	c.gauge(descQuorum, float64(status.Quorum))
	c.gauge(descSpare, float64(status.Spare()))
	c.gauge(descMaxTTL, status.MaxTTL.Seconds())
	c.gauge(descLeft, status.Left.Seconds())
	for _, step := range allSteps {
		c.gauge(descChange, oneIf(status.Change != nil && status.Change.Step == step), string(step))
	}
	for i := range status.Nodes {
		node := &status.Nodes[i]
		c.gauge(descNodeLeft, node.Left.Seconds(), node.Name)
		c.gauge(descNodeWrite, node.Write.Seconds(), node.Name)
		c.gauge(descWarnings, float64(len(node.Warning)), node.Name)
		for _, state := range allNodeStates {
			c.gauge(descState, oneIf(node.State == state), node.Name, string(state))
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
