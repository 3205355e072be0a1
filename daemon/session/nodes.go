package session

import (
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// nodes shows, commits or undoes a change of the nodes. A restart repeats it, without another effect.
func (s *session) nodes(call *server.Call) server.Work {
	verb := ""
	if len(call.Words) > 0 {
		verb = call.Words[0]
	}
	if verb != "" && verb != "commit" && verb != "undo" {
		return s.refuse(call, badOption("NODES %s: wanted commit, undo or nothing", verb))
	}
	return workFunc(func() {
		if err := s.changeNodes(call, verb); err != nil {
			s.refuse(call, err)
			return
		}
		s.showNodes(call)
	})
}

// changeNodes commits or undoes a change, or does nothing.
func (s *session) changeNodes(call *server.Call, verb string) (err error) {
	nodes, log := s.host.Nodes, s.host.Log.With("user", s.user, "pid", s.pid)
	switch verb {
	case "commit":
		if err = nodes.CommitChange(call.Context()); err == nil {
			log.Warn("change of the nodes committed: hosts with the old list get no vote from now on")
		}
	case "undo":
		if err = nodes.UndoChange(call.Context()); err == nil {
			log.Warn("change of the nodes undone")
		}
	}
	if err != nil {
		log.Info("change of the nodes refused", "verb", verb, "error", err)
	}
	return err
}

// showNodes answers with a line for each node and each host.
func (s *session) showNodes(call *server.Call) {
	nodes, status := s.host.Nodes, s.host.status()
	for _, node := range status.Nodes {
		line := new(ipc.Response).Line(call.Tag).Str("node", node.Name).Str("address", node.Address).Str("state", string(node.State))
		if node.Left > 0 {
			line.Ms("left", node.Left)
		}
		call.Line(stepFields(line, node, status.Change).Say(nodeText(node)))
	}
	hosts, err := nodes.ChangeHosts(call.Context())
	for _, h := range hosts {
		call.Line(new(ipc.Response).Line(call.Tag).Str("host", h.Name).Str("list", string(h.List)).Ms("seen", h.Seen))
	}
	r := call.OK().Int("n", int64(len(status.Nodes)+len(hosts)))
	changeFields(r, status.Change)
	text := nodes.NextStep(hosts)
	if err != nil {
		r.Str("unseen", "yes")
		text += "; " + err.Error()
	}
	call.Reply(r.Say(s.host.sayUnreloaded(r, text)))
}

// stepFields adds what a change of the nodes means for a node.
func stepFields(line *ipc.Response, node redlock.NodeStatus, change *redlock.Change) *ipc.Response {
	if node.Step != "" {
		line.Str("step", node.Step)
	}
	switch {
	case change == nil:
	case slices.Contains(change.Joining, node.Name):
		line.Str("list", "joining")
	case slices.Contains(change.Leaving, node.Name):
		line.Str("list", "leaving")
	}
	return line
}

// changeFields adds how far the change of the nodes in this host's config is.
func changeFields(r *ipc.Response, c *redlock.Change) {
	if c == nil {
		return
	}
	r.Str("change", string(c.Step))
	if c.Behind != nil {
		r.Strs("behind", c.Behind...)
	}
	if c.Missing != nil {
		r.Strs("missing", c.Missing...)
	}
	if c.Left > 0 {
		r.Ms("left", c.Left)
	}
	if c.Conflict {
		r.Str("conflict", "yes")
	}
}
