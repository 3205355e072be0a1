package daemon

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// statusCollector tells what the daemon knows at the moment when Prometheus asks,
// so that keeping count costs nothing in between.
type statusCollector struct{ d *daemon }

// What statusCollector tells: of the whole, of each node, and of the past.
var (
	descBuild = desc("redlockd_build_info", "1, with the version of redlockd and of the Go that built it.", "version", "goversion")

	descConnections = desc("redlockd_connections", "Clients connected.")
	descLeases      = desc("redlockd_leases", "Leases held.")
	descWaiters     = desc("redlockd_waiters", "LOCKs that wait, here or for the nodes.")
	descUnnoted     = desc("redlockd_table_unwritten", "1: the table cannot be written, and a restart would lose what is held and waited for.")
	descLongest     = desc("redlockd_queue_longest", "LOCKs that wait for the name for which the most do.")

	descNodes     = desc("redlockd_nodes", "Nodes of the config.")
	descQuorum    = desc("redlockd_quorum", "Nodes that a lock needs.")
	descSpare     = desc("redlockd_quorum_spare", "How many more nodes may fail; -1 and less: no lock can be taken.")
	descMaxTTL    = desc("redlockd_max_ttl_seconds", "The longest ttl that any host uses; also how long a quarantine lasts.")
	descLeft      = desc("redlockd_quorum_left_seconds", "Until quarantines are over that alone keep a quorum from voting; 0 where none do.")
	descState     = desc("redlockd_node_state", "1 for the state in which a node is, 0 for the others.", "node", "state")
	descNodeLeft  = desc("redlockd_node_quarantine_left_seconds", "What is left of a node's quarantine; 0 also where it waits for more than time.", "node")
	descWarnings  = desc("redlockd_node_warnings", "What could be better about a node: redlock status says it.", "node")
	descEnds      = desc("redlockd_node_certificate_end_timestamp_seconds", "When the first certificate ends that the next connection to a node needs: what it shows, who signed that, our own. In Unix time.", "node")
	allNodeStates = []redlock.NodeState{redlock.NodeReady, redlock.NodeConnecting, redlock.NodeDown, redlock.NodeQuarantined, redlock.NodeRefused}
)

// pastCounts are those of redlock.Counts.
var pastCounts = []struct {
	desc *prometheus.Desc
	of   func(*redlock.Counts) uint64
}{
	{desc("redlockd_grants_total", "Locks granted."), func(c *redlock.Counts) uint64 { return c.Grants }},
	{desc("redlockd_hand_overs_total", "Releases that were at once a grant, or an attempt, for somebody else on this host."), func(c *redlock.Counts) uint64 { return c.HandOvers }},
	{desc("redlockd_splits_total", "Attempts that were refused as several took the lock on some nodes each."), func(c *redlock.Counts) uint64 { return c.Splits }},
	{desc("redlockd_wake_ups_total", "Waits that ended because a node told that the lock may be free."), func(c *redlock.Counts) uint64 { return c.Wakeups }},
	{desc("redlockd_write_backs_total", "Grants and attempts that took a second round for the fencing token."), func(c *redlock.Counts) uint64 { return c.WriteBacks }},
	{desc("redlockd_repairs_total", "Locks set again on a node that had lost them."), func(c *redlock.Counts) uint64 { return c.Repairs }},
	{desc("redlockd_quarantines_total", "Quarantines of nodes that this daemon began."), func(c *redlock.Counts) uint64 { return c.Quarantines }},
	{desc("redlockd_clock_jumps_total", "Clocks that jumped: of nodes, or of this host."), func(c *redlock.Counts) uint64 { return c.ClockJumps }},
	{desc("redlockd_withdrawals_total", "Nodes whose vote was taken back: for a clock that jumped, or for others' data."), func(c *redlock.Counts) uint64 { return c.Withdrawals }},
	{desc("redlockd_fencing_resets_total", "Times that fencing tokens began anew, as a quorum of nodes had no counters."), func(c *redlock.Counts) uint64 { return c.CounterLosses }},
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe is a Collector's.
func (s statusCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		descBuild, descConnections, descLeases, descWaiters, descLongest, descUnnoted,
		descNodes, descQuorum, descSpare, descMaxTTL, descLeft, descState, descNodeLeft, descWarnings, descEnds,
	} {
		to <- desc
	}
	for _, count := range pastCounts {
		to <- count.desc
	}
}

// Collect is a Collector's. It asks no node.
func (s statusCollector) Collect(to chan<- prometheus.Metric) {
	c := collection(to)
	c.gauge(descBuild, 1, Version(), runtime.Version())
	s.collectClients(c)
	status := s.d.nodesStatus()
	c.collectNodes(&status)
	for node, end := range s.d.certificates.ends() {
		c.gauge(descEnds, float64(end.Unix()), node)
	}
	c.collectPast(&status.Counts)
}

func (s statusCollector) collectClients(c collection) {
	waiting := s.d.queue.Waiting()
	c.gauge(descConnections, float64(s.d.limits.Connections()))
	c.gauge(descLeases, float64(s.d.leases.held()))
	c.gauge(descWaiters, float64(len(waiting)))
	c.gauge(descLongest, float64(longestLine(waiting)))
	c.gauge(descUnnoted, oneIf(s.d.journal.Health() != state.Healthy))
}

// longestLine is how many places stand in the longest line.
func longestLine(waiting []*waitqueue.Waiter) (longest int) {
	lines := map[string]int{}
	for _, p := range waiting {
		for _, name := range p.Names {
			lines[name]++
			longest = max(longest, lines[name])
		}
	}
	return longest
}

// collection is where metrics are sent.
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
	for i := range status.Nodes {
		node := &status.Nodes[i]
		c.gauge(descNodeLeft, node.Left.Seconds(), node.Name)
		c.gauge(descWarnings, float64(len(node.Warning)), node.Name)
		for _, state := range allNodeStates {
			c.gauge(descState, oneIf(node.State == state), node.Name, string(state))
		}
	}
}

func (c collection) collectPast(counts *redlock.Counts) {
	for _, count := range pastCounts {
		c <- prometheus.MustNewConstMetric(count.desc, prometheus.CounterValue, float64(count.of(counts)))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
