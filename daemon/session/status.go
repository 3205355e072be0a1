package session

import (
	"time"

	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// status answers from memory. It shows the nodes, and how many leases and waiters LIST would show
// the client.
func (s *session) status(call *server.Call) server.Work {
	status := s.host.status()
	for _, node := range status.Nodes {
		call.Line(nodeLine(call, node, status.Change))
	}
	leases, waiters := s.host.counts(s.view())
	n := int64(len(status.Nodes))
	r := call.OK().Int("n", n).Int("nodes", n).
		Int("quorum", int64(status.Quorum)).
		Int("spare", int64(status.Spare())).
		Int("leases", int64(leases)).
		Int("waiters", int64(waiters)).
		Int("connections", int64(s.host.Limits.Connections()))
	if status.Left > 0 {
		r.Ms("left", status.Left)
	}
	text := statusText(status)
	if left, drains := s.host.drainLeft(); drains {
		r.Ms("draining", left)
		text = s.host.drainText(left) + "; " + text
	}
	if c := status.Change; c != nil {
		r.Str("change", string(c.Step))
		text += "; change of the nodes (" + string(c.Step) + "): " + c.Next(nil)
	}
	text = s.host.sayUnreloaded(r, text)
	if why := s.host.Journal.Health(); why != state.Healthy {
		r.Str("unnoted", "yes").Str("table", why.String())
		text += "; a restart of redlockd would lose leases and waiters, because " + why.Text()
	}
	if ignored := *s.host.doctorIgnore.Load(); ignored != nil {
		r.Strs("doctor_ignore", ignored...)
	}
	return reply(call, countFields(r, status).Say(text))
}

// countFields adds how often each event happened since the daemon was started.
func countFields(r *ipc.Response, status redlock.Status) *ipc.Response {
	c := status.Counts
	return r.Ms("max_ttl", status.MaxTTL).
		Int("grants", int64(c.Grants)).
		Int("lost", int64(c.Lost)).
		Int("handovers", int64(c.HandOvers)).
		Int("passes", int64(c.Passes)).
		Int("splits", int64(c.Splits)).
		Int("wakeups", int64(c.Wakeups)).
		Int("writebacks", int64(c.WriteBacks)).
		Int("repairs", int64(c.Repairs)).
		Int("quarantines", int64(c.Quarantines)).
		Int("clock_jumps", int64(c.ClockJumps)).
		Int("withdrawals", int64(c.Withdrawals)).
		Int("counter_losses", int64(c.CounterLosses))
}

func nodeLine(call *server.Call, node redlock.NodeStatus, change *redlock.Change) *ipc.Response {
	line := new(ipc.Response).Line(call.Tag).Str("node", node.Name).
		Str("address", node.Address).Str("state", string(node.State))
	if node.State == redlock.NodeReady {
		line.Str("wakeups", wakeUps(node))
	}
	if node.Left > 0 {
		line.Ms("left", node.Left)
	}
	if node.RTT > 0 {
		line.Ms("rtt", node.RTT+time.Millisecond-1) // rounded up
	}
	if node.Write > 0 {
		line.Ms("write", node.Write+time.Millisecond-1)
	}
	if n := len(node.OtherWarnings()); n > 0 {
		line.Int("warnings", int64(n))
	}
	if node.IsVolatile() {
		line.Str("persistence", "none")
	}
	return stepFields(line, node, change).Say(nodeText(node))
}

// wakeUps returns how the node wakes waiters.
func wakeUps(node redlock.NodeStatus) string {
	if node.Calls {
		return "pubsub"
	}
	return "polling"
}
