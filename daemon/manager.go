package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/systemd"
)

// attendant sends the service manager the status of the daemon, and keeps the watchdog alive. Its
// steps need the mutexes and loops of all parts of the daemon. If one of them hangs, the watchdog gets
// no message, and restarts the daemon.
type attendant struct {
	d      *daemon
	m      *systemd.Manager
	told   redlock.Pulse // at the last message to the watchdog
	looked time.Duration // BootTime of the last look
	still  time.Duration // how long a loop has hung since the last message
	warned bool          // the log has the hanging loop
	mute   bool          // a message to the manager failed, and later failures are not logged
}

// attention is the interval of the status reports to the service manager.
const attention = time.Second

// attend sends status reports to the manager, if there is one, until ctx ends.
func (d *daemon) attend(ctx context.Context, m *systemd.Manager) {
	if !m.Listens() {
		return
	}
	every := attention
	if watchdog := m.Watchdog(); watchdog > 0 {
		every = min(every, watchdog/4)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	a := &attendant{d: d, m: m, looked: d.Clock()}
	for {
		a.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *attendant) look() {
	a.tell(a.m.Status(a.d.statusLine()))
	if a.m.Watchdog() == 0 {
		return
	}
	a.wait()
	pulse := a.d.Nodes.Pulse()
	switch {
	case pulse.Beats(a.told):
		a.tell(a.m.KeepAlive())
		a.told, a.still, a.warned = pulse, 0, false
	case !a.warned && a.still > a.m.Watchdog()/2:
		a.warned = true
		a.d.Log.Error("leases are no longer extended: a defect in redlockd, please report it; the watchdog is about to end the process",
			"for", a.still, "extensions", pulse.Keeper != a.told.Keeper, "nodes", pulse.Lanes != a.told.Lanes)
	}
}

// wait adds the time since the last look, but at most a quarter of the watchdog's time. If a look is
// late, the process was stopped or the host was suspended: no loop could run then, and none hangs.
func (a *attendant) wait() {
	now := a.d.Clock()
	a.still += min(now-a.looked, a.m.Watchdog()/4)
	a.looked = now
}

// tell logs the error of the first message that did not reach the manager.
func (a *attendant) tell(err error) {
	if err != nil && !a.mute {
		a.mute = true
		a.d.LogManagerError(err)
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
	return fmt.Sprintf("%s; leases %d, waiters %d, connections %d",
		line, d.Leases.Held(), len(d.Queue.Waiting()), d.Limits.Connections())
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
