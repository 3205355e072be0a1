package daemon

import (
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/daemon/state"
)

// serveMetrics starts the listener of the config, if it has one. stop waits for it.
func (d *daemon) serveMetrics() (stop func()) {
	if d.Cfg.Metrics == nil {
		return func() {}
	}
	o := metrics.Options{
		Address: d.Cfg.Metrics.Address, Log: d.Log, Recorder: d.recorder, Snapshot: d.snapshot,
		Page: d.Cfg.Metrics.Page, Host: d.Hostname(),
	}
	if d.Cfg.Metrics.Names {
		o.Locks = d.Locks
	}
	return metrics.NewServer(o).Start()
}

// snapshot returns the state of the daemon, for metrics. It contacts no node.
func (d *daemon) snapshot() metrics.Snapshot {
	waiting := d.Waiting()
	return metrics.Snapshot{
		Version:         Version(),
		Connections:     d.Limits.Connections(),
		Leases:          d.Held(),
		Waiters:         len(waiting),
		LongestQueue:    longestQueue(waiting),
		Draining:        d.Drains(),
		Unwritten:       d.Journal.Health() != state.Healthy,
		Quorum:          d.nodesStatus(),
		CertificateEnds: d.certificates.expiries(),
	}
}

// longestQueue returns the largest number of waiters for one name.
func longestQueue(waiting []*locktable.Waiter) (longest int) {
	waiters := map[string]int{}
	for _, w := range waiting {
		for _, name := range w.Names {
			waiters[name]++
			longest = max(longest, waiters[name])
		}
	}
	return longest
}

func nodeNames(cfg *config.Config) (names []string) {
	for _, node := range cfg.Quorum.Nodes {
		names = append(names, node.Name)
	}
	return names
}
