package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/systemd"
)

// statusReporter sends the service manager the status of the daemon, and keeps the watchdog alive.
// Its steps need the mutexes and loops of all parts of the daemon. If one of them hangs, the
// watchdog gets no message, and restarts the daemon.
type statusReporter struct {
	d             *daemon
	m             *systemd.Manager
	lastPulse     redlock.Pulse // at the last message to the watchdog
	lastReport    time.Duration // BootTime of the last look
	hungFor       time.Duration // how long a loop has hung since the last message
	hangLogged    bool          // the log has the hanging loop
	failureLogged bool          // a message to the manager failed, and later failures are not logged
}

// reportInterval is the interval of the status reports to the service manager.
const reportInterval = time.Second

// reportStatus sends status reports to the manager, if there is one, until ctx ends.
func (d *daemon) reportStatus(ctx context.Context, m *systemd.Manager) {
	if !m.Listens() {
		return
	}
	every := reportInterval
	if watchdog := m.Watchdog(); watchdog > 0 {
		every = min(every, watchdog/4)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	r := &statusReporter{d: d, m: m, lastReport: d.Clock()}
	for {
		r.report()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *statusReporter) report() {
	r.logFailure(r.m.Status(r.d.statusLine()))
	if r.m.Watchdog() == 0 {
		return
	}
	r.countTime()
	pulse := r.d.Nodes.Pulse()
	switch {
	case pulse.AdvancedSince(r.lastPulse):
		r.logFailure(r.m.KeepAlive())
		r.lastPulse, r.hungFor, r.hangLogged = pulse, 0, false
	case !r.hangLogged && r.hungFor > r.m.Watchdog()/2:
		r.hangLogged = true
		r.d.Log.Error("leases are no longer extended: a defect in redlockd, please report it; the watchdog is about to end the process",
			"for", r.hungFor, "extensions", pulse.Keeper != r.lastPulse.Keeper, "nodes", pulse.Lanes != r.lastPulse.Lanes)
	}
}

// countTime adds the time since the last look, but at most a quarter of the watchdog's time. If a
// look is late, the process was stopped or the host was suspended: no loop could run then, and none
// hangs.
func (r *statusReporter) countTime() {
	now := r.d.Clock()
	r.hungFor += min(now-r.lastReport, r.m.Watchdog()/4)
	r.lastReport = now
}

// logFailure logs the error of the first message that did not reach the manager.
func (r *statusReporter) logFailure(err error) {
	if err != nil && !r.failureLogged {
		r.failureLogged = true
		r.d.LogManagerError(err)
	}
}

// statusLine describes the state of the daemon in a line, for systemctl status.
func (d *daemon) statusLine() string {
	status := d.Nodes.Status()
	line := fmt.Sprintf("%d of %d nodes ready", status.Ready, len(status.Nodes))
	if status.Spare() < 0 {
		line = fmt.Sprintf("NO LOCKS: %s, %d needed", line, status.Quorum)
	}
	if missing := missingNodes(status.Nodes); missing != "" {
		line += " (" + missing + ")"
	}
	if d.Drains() {
		line = "DRAINING, no new locks: " + line
	}
	return fmt.Sprintf("%s; leases %d, waiters %d, connections %d",
		line, d.Held(), len(d.Waiting()), d.Limits.Connections())
}

// missingNodes lists the nodes that may not vote, with their states.
func missingNodes(nodes []redlock.NodeStatus) string {
	var missing []string
	for _, node := range nodes {
		if node.State != redlock.NodeReady {
			missing = append(missing, node.Name+" "+string(node.State))
		}
	}
	return strings.Join(missing, ", ")
}
