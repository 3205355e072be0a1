package daemon

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// who is a WHO under way: the nodes are asked.
type who struct {
	s    *session
	call *ipc.Call
}

func (w *who) Run() {
	name := w.call.Names[0]
	holdings, err := w.s.d.nodes.Who(w.call.Context(), name)
	if err != nil {
		w.s.refuse(w.call, err)
		return
	}
	nodes := int64(len(w.s.d.cfg.Quorum.Nodes))
	for _, h := range holdings {
		line := new(ipc.Response).Line(w.call.Tag).Str("lock", name).Str("mode", "exclusive")
		holderFields(line, h.Holder)
		w.call.Line(ttlField(line, h.TTL).Int("held", int64(h.Held)).Int("nodes", nodes).Say(whoText(h)))
	}
	w.call.Reply(ok(w.call).Int("n", int64(len(holdings))))
}

func whoText(h redlock.Holding) string {
	if !h.Holder.Known() {
		return "held by another Redlock client, whose value does not say who it is"
	}
	return ""
}

// list shows the leases and waiters of this daemon, without their secrets.
func (s *session) list(call *ipc.Call) ipc.Work {
	holdings := s.d.leases.all()
	slices.SortFunc(holdings, func(a, b *holding) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.since, b.since))
	})
	n := 0
	for _, h := range holdings {
		if h.lease.Err() == nil {
			call.Line(s.listLine(call, h.name, "held", &h.asker).
				Int("fence", int64(h.lease.Fence())).Ms("ttl", h.lease.Validity()))
			n++
		}
	}
	for _, p := range s.d.queue.waiting() {
		call.Line(s.listLine(call, p.names[0], "waiting", p.who))
		n++
	}
	return reply(call, ok(call).Int("n", int64(n)))
}

func (s *session) listLine(call *ipc.Call, name, state string, who *asker) *ipc.Response {
	line := new(ipc.Response).Line(call.Tag).Str("lock", name).Str("state", state).Str("mode", "exclusive").
		Int("pid", int64(who.pid)).Str("user", who.user).Ms("since", s.d.clock()-who.since)
	if who.note != "" {
		line.Str("note", who.note)
	}
	return line
}

// status shows the nodes, from memory.
func (s *session) status(call *ipc.Call) ipc.Work {
	status := s.d.nodes.Status()
	for _, node := range status.Nodes {
		call.Line(nodeLine(call, node))
	}
	n := int64(len(status.Nodes))
	return reply(call, ok(call).Int("n", n).Int("nodes", n).
		Int("quorum", int64(status.Quorum)).
		Int("spare", int64(status.Spare())).
		Int("leases", int64(s.d.leases.held())).
		Int("waiters", int64(len(s.d.queue.waiting()))).
		Int("connections", int64(s.d.limits.connected())).
		Say(statusText(status)))
}

func nodeLine(call *ipc.Call, node redlock.NodeStatus) *ipc.Response {
	line := new(ipc.Response).Line(call.Tag).Str("node", node.Name).
		Str("address", node.Address).Str("state", string(node.State))
	if node.RTT > 0 {
		line.Ms("rtt", node.RTT+time.Millisecond-1) // rounded up
	}
	if node.Reason != nil {
		line.Say(node.Reason.Error())
	}
	return line
}

func statusText(status redlock.Status) string {
	switch spare := status.Spare(); {
	case spare < 0:
		return "no quorum: no lock can be taken until more nodes are ready"
	case spare == 0:
		return "locks work, but no further node may fail"
	case spare == 1:
		return "locks work, and go on if 1 more node fails"
	default:
		return "locks work, and go on if " + strconv.Itoa(spare) + " more nodes fail"
	}
}

// heldHere is the answer to who waits for a lock that a client of this very
// daemon holds.
func (d *daemon) heldHere(h *holding) error {
	return &redlock.HeldError{
		Name: h.name,
		Holder: redlock.Holder{
			Host: d.host, PID: h.pid, UID: h.uid, User: h.user,
			Since: time.Now().Add(h.since - d.clock()),
		},
		TTL: max(h.lease.Validity(), time.Millisecond),
	}
}
