package daemon

import (
	"errors"
	"fmt"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// admit is an ADMIT under way: quarantines that end early.
type admit struct {
	s    *session
	call *server.Call
}

// admit is not begun again after a restart: the node may be in another quarantine by now,
// of which the caller knows nothing.
func (s *session) admit(call *server.Call) server.Work {
	if call.Replayed {
		return s.refuse(call, fmt.Errorf("%s: %w: STATUS tells which nodes are in quarantine", call.Words[0], errUnknown))
	}
	return &admit{s, call}
}

func (a *admit) Run() {
	nodes, err := a.nodes()
	for _, node := range nodes {
		if err = a.admit(node); err != nil {
			break
		}
	}
	if err != nil {
		a.s.refuse(a.call, err)
		return
	}
	a.call.Reply(ok(a.call).Int("n", int64(len(nodes))))
}

// nodes are those that are meant: all means all that are in quarantine.
func (a *admit) nodes() (names []string, err error) {
	wanted := a.call.Words[0]
	for _, node := range a.s.d.nodes.Status().Nodes {
		if node.Name == wanted || wanted == "all" && node.State == redlock.NodeQuarantined {
			names = append(names, node.Name)
		}
	}
	if len(names) == 0 && wanted != "all" {
		return nil, badOption("ADMIT %s: there is no such node; STATUS lists them", wanted)
	}
	return names, nil
}

func (a *admit) admit(node string) error {
	err := a.s.d.nodes.Admit(a.call.Context(), node)
	switch {
	case err == nil:
		a.s.d.log.Warn("quarantine ended early by ADMIT", "node", node, "user", a.s.user, "pid", a.s.pid)
	case a.call.Words[0] != "all" || !errors.Is(err, redlock.ErrNotQuarantined): // it may just have ended by itself
		a.s.d.log.Info("ADMIT failed", "node", node, "user", a.s.user, "pid", a.s.pid, "error", err)
		return err
	}
	a.call.Line(new(ipc.Response).Line(a.call.Tag).Str("node", node).Str("state", string(redlock.NodeReady)))
	return nil
}
