package session

import (
	"slices"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// nodesWork is a NODES under way: it shows, commits or undoes a change of the nodes. A restart repeats
// it, without another effect.
type nodesWork struct {
	s    *session
	call *server.Call
	verb string // "", commit or undo
}

func (s *session) nodes(call *server.Call) server.Work {
	w := &nodesWork{s: s, call: call}
	if len(call.Words) > 0 {
		w.verb = call.Words[0]
	}
	switch w.verb {
	case "", "commit", "undo":
		return w
	}
	return s.refuse(call, badOption("NODES %s: wanted commit, undo or nothing", w.verb))
}

func (w *nodesWork) Run() {
	if err := w.change(); err != nil {
		w.s.refuse(w.call, err)
		return
	}
	w.call.Reply(w.shown())
}

// change commits or undoes a change.
func (w *nodesWork) change() (err error) {
	nodes, log := w.s.host.Nodes, w.s.host.Log.With("user", w.s.user, "pid", w.s.pid)
	switch w.verb {
	case "commit":
		err = nodes.CommitChange(w.call.Context())
	case "undo":
		err = nodes.UndoChange(w.call.Context())
	default:
		return nil
	}
	if err != nil {
		log.Info("change of the nodes refused", "verb", w.verb, "error", err)
		return err
	}
	if w.verb == "commit" {
		log.Warn("change of the nodes committed: hosts with the old list get no vote from now on")
	} else {
		log.Warn("change of the nodes undone")
	}
	return nil
}

// shown adds a line for each node and each host, and returns the answer.
func (w *nodesWork) shown() *ipc.Response {
	nodes := w.s.host.Nodes
	status := w.s.host.status()
	for _, node := range status.Nodes {
		w.call.Line(changedNodeLine(w.call, node, status.Change))
	}
	hosts, err := nodes.ChangeHosts(w.call.Context())
	for _, h := range hosts {
		w.call.Line(new(ipc.Response).Line(w.call.Tag).Str("host", h.Name).Str("list", string(h.List)).Ms("seen", h.Seen))
	}
	r := w.call.OK().Int("n", int64(len(status.Nodes)+len(hosts)))
	changeFields(r, status.Change)
	text := nodes.NextStep(hosts)
	if err != nil {
		r.Str("unseen", "yes")
		text += "; " + err.Error()
	}
	return r.Say(text)
}

func changedNodeLine(call *server.Call, node redlock.NodeStatus, change *redlock.Change) *ipc.Response {
	line := new(ipc.Response).Line(call.Tag).Str("node", node.Name).Str("address", node.Address).Str("state", string(node.State))
	return stepFields(line, node, change).Say(nodeText(node))
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
