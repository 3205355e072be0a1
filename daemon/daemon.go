package daemon

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/daemon/session"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/systemd"
)

// daemon is a Host with the parts that start, stop and observe it.
type daemon struct {
	*session.Host
	recorder     *metrics.Recorder // of events, for Prometheus; nil: metrics are off
	quorate      quorumState       // whether a quorum of nodes is ready, for the log
	nodeLog      nodeLog           // what the log has about the nodes
	changeLog    changeLog         // and about a change of them
	isChanging   bool              // the config has joining or leaving nodes
	certificates *certificates     // of the nodes that have TLS
	listener     *socket           // set when the daemon serves
	frozen       atomic.Bool       // set after Freeze: the daemon does nothing until its process exits

	replacing bool             // the process replaces itself
	passed    []systemd.Passed // descriptors for the next process
}

func newDaemon(cfg *config.Config, log hclog.Logger, nodes []redlock.Node, dev bool) (*daemon, error) {
	d := &daemon{certificates: newCertificates(cfg, log), isChanging: cfg.Quorum.IsChanging()}
	kept := 0
	if cfg.Metrics != nil {
		d.recorder = metrics.NewRecorder(nodeNames(cfg))
		kept = metrics.MaxConnections
	}
	d.Host = session.NewHost(session.HostOptions{Config: cfg, Log: log, Recorder: d.recorder, Status: d.nodesStatus, Version: Version(), KeptFDs: kept})
	return d, d.Connect(redlock.Options{
		Nodes:       nodes,
		Prefix:      cfg.Quorum.KeyPrefix,
		NodeTimeout: cfg.Quorum.NodeTimeout,
		MaxTTL:      cfg.Quorum.MaxTTL,
		Observe:     d.observeNode,
		Notice:      d.logNotice,
		RoundTrip:   d.recorder.RoundTrip,
		Extended:    d.recorder.Extended,

		NoQuarantine: dev, // embedded nodes start and end with this process
	})
}

// nodesStatus returns the status of the nodes, with warnings about certificates.
func (d *daemon) nodesStatus() redlock.Status {
	status := d.Nodes.Status()
	d.certificates.addWarnings(status.Nodes)
	return status
}

// logNotice logs an event that the operator of the nodes must know.
func (d *daemon) logNotice(n redlock.Notice) {
	switch n.Kind {
	case redlock.HostClockJumped:
		d.Log.Error("this host's clock stood still, or all nodes' clocks were stepped", "reason", n.Text)
	case redlock.NewFleet:
		d.Log.Info("the nodes are new", "reason", n.Text)
	case redlock.CountersLost:
		d.Log.Warn("fencing counters restarted", "reason", n.Text)
	default:
		d.Log.Error("node's admission withdrawn: it is in quarantine again", "node", n.Node, "kind", n.Kind, "reason", n.Text)
	}
}
